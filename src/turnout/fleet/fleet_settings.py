"""Settings of the manager: how long replicas stay, and how jobs for tasks are made on Kubernetes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import ConfigDict

from turnout.fleet.fleet_rules import Rules
from turnout.setting_types import Seconds, SomeSeconds


@dataclass(frozen=True, slots=True)
class GangPods:
    """The pods of a model's gangs: how many, and the template (`metadata`, `spec`) of each."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    template: Mapping[str, Any]
    pods: int = 1

    def __post_init__(self) -> None:
        spec: Any = self.template.get("spec")
        if not isinstance(spec, Mapping) or not cast("Mapping[str, Any]", spec).get("containers"):
            raise ValueError("a template has a spec with containers")
        if self.pods < 1:
            raise ValueError("a gang has one pod at least")


@dataclass(frozen=True, slots=True)
class KubernetesJobs:
    """How the manager makes jobs for models whose runner is `job`. `gangs` says the pods of each model, `*` those of all
    others; these call a gateway at `gateway_url`. `launcher` tells one installation's jobs from another's; `owner` is a ConfigMap
    with which the jobs go. `labels` and `annotations` are for those who queue and schedule jobs. A gang that is kept (`keep_s`) renders
    further tasks, and leaves when it had none for so long."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    gangs: Mapping[str, GangPods]
    gateway_url: str
    kind: Literal["job", "pytorchjob", "rayjob"] = "pytorchjob"
    namespace: str | None = None
    launcher: str = "turnout"
    owner: str | None = None
    deadline_s: int = 7200
    ttl_s: int = 600
    pending_s: float = 300.0
    keep_s: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        parts = urlsplit(self.gateway_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError(
                "gateway_url is an http or https URL that the jobs' pods reach, without a password"
            )


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """`min_resident_s` is how long a replica stays, whoever waits for its room. The replicas of a worker that was not heard for
    `worker_gone_s` are placed elsewhere."""

    min_resident_s: SomeSeconds = 30.0
    worker_gone_s: Seconds = 20.0
    kubernetes_jobs: KubernetesJobs | None = None

    @property
    def rules(self) -> Rules:
        return Rules(min_resident_s=self.min_resident_s).with_gone_s(self.worker_gone_s)
