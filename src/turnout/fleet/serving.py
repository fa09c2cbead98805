"""What serves requests: models that can be woken, the machines they run on, and their resident copies. Pure.

A **replica** is one resident copy of a model: an engine server, or a gang. The manager alone decides that a
replica exists, where, and in which state it should be (`want`); its worker says in which state it is (`phase`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType, cast

from turnout.fleet.video_model_rules import Dtype, Model, VideoPart
from turnout.tenants.gpu_time_rules import GpuReport

WorkerId = NewType("WorkerId", str)
ReplicaId = NewType("ReplicaId", str)


class EngineKind(StrEnum):
    """`COMMAND` is a command line of one's own for any server that speaks OpenAI's dialect."""

    WAN = "wan"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    COMMAND = "command"


ENGINE_SERVERS = frozenset(EngineKind) - {EngineKind.WAN}
"""Those that answer requests over HTTP; wan is rendered by gangs that take tasks from a queue."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one replica takes from a machine. `gpu_memory_bytes` is taken on each of its GPUs (0: the share that
    the model's `gpu_memory_utilization` says, or a whole GPU); `asleep_gpu_memory_bytes` is what it keeps there
    while asleep. `memory_bytes` is counted awake and asleep, so a model that sleeps states what it takes asleep."""

    gpus: int = 0
    gpu_memory_bytes: int = 0
    memory_bytes: int = 0
    asleep_gpu_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A registered model. `weights` is a name or a path that the engine understands, `builtin:NAME` for what
    ships with a package; `arguments` are extra engine arguments that passed the allow list; `command` is the
    command line of a COMMAND engine, with `{port}` and `{weights}` filled in by the worker.

    `concurrency` is how many requests one replica takes at once; past it they wait. A wan model has a `video` part,
    and its replicas are gangs: each takes one task at a time from the model's queue.
    """

    name: str
    engine: EngineKind
    weights: str
    needs: Needs = Needs()
    min_replicas: int = 0
    max_replicas: int = 1
    idle_s: float = 300.0
    load_timeout_s: float = 600.0
    concurrency: int = 64
    sleep: bool = False  # whether idle means asleep (vLLM's sleep mode) before it means gone
    asleep_s: float = 3600.0  # how long it stays asleep before it is gone
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    tensor_parallel_size: int = 1
    dtype: str | None = None
    quantization: str | None = None
    arguments: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    video: VideoPart | None = None


def gang_model(model: ServedModel) -> Model | None:
    """The model as its gangs know it; None for one that is served by engine servers."""
    video = model.video
    if video is None:
        return None
    dtype = cast("Dtype", model.dtype or ("bfloat16" if video.device == "cuda" else "float32"))
    return Model(
        model.name,
        model.weights,
        video.rules,
        video.ulysses,
        video.cfg,
        video.fsdp,
        video.device,
        dtype,
        model.min_replicas,
        model.max_replicas,
        model.idle_s,
        video.fp8,
        video.video_engine,
        video.loras,
        video.usual_loras,
        video.loras_apart,
        model.load_timeout_s,
    )


class Phase(StrEnum):
    """What a worker reports of a replica. Whether it is busy is a count, not a phase."""

    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    STOPPING = "stopping"
    GONE = "gone"
    FAILED = "failed"


class Want(StrEnum):
    """What the manager wants of a replica."""

    READY = "ready"
    ASLEEP = "asleep"
    GONE = "gone"


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


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica as its worker sees it, of which model and on which GPUs. `address` is where its engine listens on that machine ("host:port");
    `busy` counts requests under way; `detail` says why it failed, or how far it has loaded, in words for a user."""

    id: ReplicaId
    phase: Phase
    address: str | None = None
    busy: int = 0
    detail: str = ""
    model: str = ""
    gpus: tuple[int, ...] = ()


class Standing(StrEnum):
    """What the manager thinks of a worker, by its own clock."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    GONE = "gone"


# The `url` of a worker that nobody can reach: it holds a tunnel open to each gateway instead.
TUNNEL = "tunnel:"


@dataclass(frozen=True, slots=True)
class Worker:
    """`url` is how gateways reach the worker's relay; `heard_at` is by the manager's clock.

    `version` numbers its orders and `seen` is the version it last had; `seq` numbers its heartbeats, so that a
    late one is known. `strangers` are replicas it reports that are not (or no longer) its own to have. When it lost
    replicas it may be starting them again from older orders, so nothing is placed there before it has seen `hold`.
    """

    id: WorkerId
    machine: Machine
    url: str
    heard_at: float
    standing: Standing = Standing.ALIVE
    draining: bool = False
    reports: Mapping[ReplicaId, ReplicaReport] = field(default_factory=dict[ReplicaId, ReplicaReport])
    name: str = ""
    seq: int = 0
    seen: int = 0
    version: int = 1
    hold: int = 0
    strangers: frozenset[ReplicaId] = frozenset()
    freed_at: float = float("-inf")  # when a replica last left it: its memory may take a while to be free

    @property
    def settled(self) -> bool:
        """Whether it has nothing but what the manager knows of."""
        return not self.strangers and self.seen >= self.hold


@dataclass(frozen=True, slots=True)
class Closing:
    """A replica that gets no new requests any more; once it has none left, it is to be `then`.

    `room_for` names the model that it makes room for. A closing replica may be opened again. One that is to sleep stays
    closing until it does.
    """

    since: float
    then: Want
    reason: str
    room_for: str | None = None


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy that the manager decided on. `gpus` are the indices it was given; `spec` is the model as it was
    then and `needs` what was promised (a later change of the model changes neither).

    `ordered` is the version of its worker's orders that first said `want`: what a worker reports before it has
    seen that version says nothing about it. `heard` is whether the worker ever reported it.
    """

    id: ReplicaId
    model: str
    worker: WorkerId
    gpus: tuple[int, ...]
    needs: Needs
    want: Want
    phase: Phase
    created_at: float
    phase_since: float
    used_at: float
    spec: ServedModel
    busy: int = 0
    detail: str = ""
    address: str | None = None
    ordered: int = 0
    ordered_at: float = 0.0
    ready_at: float | None = None
    heard: bool = False
    closing: Closing | None = None

    @property
    def asleep(self) -> bool:
        """Asleep as ordered: only then is its GPU memory free for others."""
        return self.want is Want.ASLEEP and self.phase is Phase.SLEEPING

    @property
    def coming(self) -> bool:
        """On its way to ready: starting, or waking."""
        return self.want is Want.READY and self.phase in (Phase.STARTING, Phase.SLEEPING)

    @property
    def open(self) -> bool:
        """Takes requests, or will."""
        return self.want is Want.READY and self.closing is None and self.phase in _OPEN

    @property
    def leaving(self) -> bool:
        """Its memory will be free when it has gone, or some of it when it sleeps: closed, or told to go."""
        return self.want is Want.GONE or self.closing is not None

    @property
    def to_sleep(self) -> bool:
        """Whether it will be asleep, and is not yet."""
        return self.closing is not None and self.closing.then is Want.ASLEEP


_OPEN = frozenset({Phase.STARTING, Phase.READY, Phase.SLEEPING})


@dataclass(frozen=True, slots=True)
class Demand:
    """What gateways see of one model: requests that wait for it, requests under way, when it was last asked, and whether
    an admin wants it stopped."""

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
    stop: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaOrder:
    """One replica that a worker should have, and how. What is not ordered should be gone. A `closing` one takes no
    new work, and finishes what it has."""

    replica: ReplicaId
    model: ServedModel
    gpus: tuple[int, ...]
    want: Want
    closing: bool = False


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
    tasks, and no requests."""

    routes: tuple[Route, ...] = ()
    concurrency: int = 64
    refusal: str | None = None
    video: bool = False


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A worker as it registered. Only a digest of its secret is kept. `key` is the id of the worker key that it joined
    with: when that key goes, so does the worker. `address` is where its URL led when it proved that it is there: it is
    called at that address, whatever the URL's name means later. Both are empty for one that joined before they were kept."""

    id: WorkerId
    name: str
    url: str
    digest: str
    draining: bool = False
    key: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class StoredHeartbeat:
    """A worker's heartbeat. `seen` is the version of the orders it has; `seq` grows from beat to beat and is given
    by whoever stores it, as does `ago_s`: how long ago it came, when it is read."""

    machine: Machine
    reports: tuple[ReplicaReport, ...] = ()
    seen: int = 0
    seq: int = 0
    ago_s: float = 0.0
    gpu_time: GpuReport | None = None


@dataclass(frozen=True, slots=True)
class OrderSheet:
    """All orders of one worker."""

    version: int
    orders: tuple[ReplicaOrder, ...] = ()
