"""What a worker's machine has, as it measured it. Pure."""

from dataclasses import dataclass
from typing import NewType

from turnout.fleet.model_rules import ENGINE_SERVERS, EngineKind

WorkerId = NewType("WorkerId", str)


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a card does not tell is None. `ecc_errors` are uncorrected ones since the driver was loaded, `xid_errors` those
    that the driver reported since its worker started."""

    index: int
    total_bytes: int
    free_bytes: int
    name: str = ""
    utilization: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    ecc_errors: int | None = None
    xid_errors: int = 0


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """Why a machine does not have something: an engine by the name of its kind, or `gpus`."""

    about: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a whole machine's processors and network did since it was started."""

    cpu_ms: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """What a worker has, as it measured it, and which engines it can run. The disk is the one with its state directory."""

    gpus: tuple[Gpu, ...]
    memory_bytes: int
    free_memory_bytes: int
    cpus: int = 1
    weights: frozenset[str] = frozenset()  # names of models whose weights lie on its disk
    engines: frozenset[EngineKind] = ENGINE_SERVERS
    disk_bytes: int = 0
    free_disk_bytes: int = 0
    findings: tuple[MachineFinding, ...] = ()
    load: NodeLoad | None = None
