"""What gateways and the manager tell each other: where a model's replicas answer, and how much it is asked for. Pure."""

from dataclasses import dataclass

from turnout.errors import Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.version_rules import VersionShare


@dataclass(frozen=True, slots=True)
class Route:
    """Where a replica answers. `url` is its worker's relay, `address` its engine on that machine; new requests
    go only to one that is neither closing nor asleep, and whose worker is not suspect."""

    replica: ReplicaId
    worker: WorkerId
    url: str
    address: str | None
    closing: bool = False
    asleep: bool = False
    suspect: bool = False

    @property
    def usable(self) -> bool:
        return not (self.closing or self.asleep or self.suspect)


@dataclass(frozen=True, slots=True)
class ModelRoutes:
    """`refusal` says why the model cannot be served now; None while waiting for it makes sense. A `video` model takes
    tasks, and no requests. `versions` answer for its name as well. `vision`: whether it takes pictures; None: its
    engine knows."""

    routes: tuple[Route, ...] = ()
    concurrency: int = 64
    refusal: str | None = None
    video: bool = False
    versions: tuple[VersionShare, ...] = ()
    vision: bool | None = None


def cannot_serve(model: str, reason: str) -> Unavailable:
    return Unavailable(f"{model} cannot be served: {reason}", "model", "model_unavailable", retry_after_s=10)


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of one model: requests that wait for it, requests under way, when it was last asked, and whether an admin
    wants it stopped."""

    waiting: int = 0
    running: int = 0
    asked_at: float = 0.0
    stop: bool = False


@dataclass(frozen=True, slots=True)
class DemandReport:
    """What one gateway sees of one model; `ago_s` is how long ago it was last asked, a duration because clocks of
    two machines are never compared."""

    waiting: int = 0
    running: int = 0
    ago_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AdminWish:
    """An admin wants the model woken or stopped; `ago_s` is how long ago that was said."""

    model: str
    stop: bool
    ago_s: float
