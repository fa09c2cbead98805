"""How the fleet stands, as the manager last published it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from turnout.domain.fleet import GivenUp
from turnout.domain.model_status import ModelStatus
from turnout.domain.serving import WorkerId


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """What watchers want to know of the fleet; `heard_s` is how long ago each worker was last heard, `webhooks` how many are
    still to be delivered. `decision_counts` only grow; they are named as in manager/figures, and `webhook:OUTCOME`."""

    replica_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    decision_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    heard_s: Mapping[WorkerId, float] = field(default_factory=dict[WorkerId, float])
    webhooks: int = 0


class FleetStatus(Protocol):
    """For those who ask: nothing here is needed to serve a request."""

    async def statuses(self) -> dict[str, ModelStatus]:
        """How each model stood when the manager last published it."""
        ...

    async def figures(self) -> FleetFigures: ...

    async def given_up(self) -> Mapping[str, GivenUp]:
        """The models that cannot be served now, and why."""
        ...
