"""Settings of gangs and the gateway on Ray."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from turnout.setting_types import Seconds, ServerUrl


@dataclass(frozen=True, slots=True)
class RaySettings:
    """`ray_gateway_url` is where gangs on the cluster reach a gateway, if that is not `public_url`.
    `ray_dashboard` is for a cluster that `turnout up --ray` starts itself."""

    ray_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    ray_interface: str | None = None
    ray_gateway_url: ServerUrl | None = None
    ray_dashboard: bool = True
    ray_place_s: Seconds = 120.0
    ray_fit_s: Seconds = 300.0
    ray_turn_s: Seconds = 300.0
    ray_health_period_s: Seconds = 5.0
    ray_health_timeout_s: Seconds = 30.0
    ray_manager_labels: Mapping[str, str] = field(default_factory=dict[str, str])
    ray_ingress_labels: Mapping[str, str] = field(default_factory=dict[str, str])
