"""What Turnout needs from the outside, named for the need. Adapters implement these; wiring chooses them.

Every method may raise Unavailable when the service behind it is down; nothing else of that service leaks.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from turnout.domain.fleet import GivenUp, Notes
from turnout.domain.keys import Key
from turnout.domain.model_status import ModelStatus
from turnout.domain.quotas import ChatLimits, Grant, ShareRequest
from turnout.domain.serving import (
    Beat,
    DemandReport,
    Enrolment,
    ModelRoutes,
    OrderSheet,
    Replica,
    ReplicaId,
    ServedModel,
    WorkerId,
)
from turnout.domain.slots import GangReport
from turnout.domain.tasks import Event, GangId, Task, TaskId, TenantId
from turnout.domain.usage import UsageRow


@dataclass(frozen=True, slots=True)
class Idempotency:
    """`key` is the caller's; `digest` is a hash of the request it came with."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tenant may have at once: `max_running` tasks under way and `max_waiting` more behind them.

    A task past both is refused; with `max_waiting` 0, so is one that would have to wait for the tenant's own.
    """

    max_waiting: int = 100
    max_running: int = 8
    submits_per_minute: int = 60


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event as it was written. `id` orders the task's own story, `cursor` the stream of all tasks."""

    id: str
    cursor: str
    task: TaskId
    tenant: TenantId
    event: Event


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """`length` counts queued and running tasks; `oldest_s` is how long the oldest of them has been there."""

    length: int
    running: int
    oldest_s: float


class TaskLog(Protocol):
    """The tasks and their stories; every write is atomic and appends what happened."""

    async def submit(self, task: Task, limits: Limits, idempotency: Idempotency | None = None) -> Task:
        """Accepts the task, or returns the one that the same idempotency key made before.

        Raises Conflict for a reused key with another digest, Limited past a limit. A refusal leaves no trace.
        """
        ...

    async def get(self, task_id: TaskId) -> Task:
        """Raises NotFound."""
        ...

    async def apply(self, task_id: TaskId, event: Event) -> Task:
        """The task after `event`. Raises Stale when the event changes nothing, NotFound when the task is gone."""
        ...

    async def forget(self, task: Task) -> None:
        """Removes an ended task and its story."""
        ...

    async def page(
        self, tenant: TenantId, *, after: TaskId | None, limit: int, order: Literal["asc", "desc"]
    ) -> tuple[list[Task], bool]:
        """A tenant's tasks by age, and whether there are more. Raises NotFound for an unknown `after`."""
        ...

    async def position(self, task: Task) -> int | None:
        """How many tasks are served before this one; None when it is not waiting."""
        ...

    async def story(self, task_id: TaskId, after: str = "0") -> list[Recorded]:
        """The task's events with ids past `after`, oldest first."""
        ...

    def tail(self, after: str | None = None) -> AsyncIterator[Recorded]:
        """All tasks' events with cursors past `after` (None: from now on), for ever, in order."""
        ...

    async def unfinished_since(self, model: str, before: float) -> list[TaskId]:
        """Some of a model's tasks that were submitted before then and have not ended."""
        ...

    async def totals(self) -> dict[str, int]:
        """How many tasks are in each state now (queued, in_progress) and ever ended (the others)."""
        ...


class Queue(Protocol):
    """One model's line of tasks, shared by its gangs."""

    async def claim(self, model: str, gang: GangId, limits: Limits) -> Task | None:
        """The next task, claimed for the gang with a fresh attempt number; None when there is none, or when the gang
        was closed."""
        ...

    async def close(self, gang: GangId) -> None:
        """From now on the gang gets no task; what it holds it keeps. Must be repeated within the hour."""
        ...

    async def open(self, gang: GangId) -> None:
        """Takes `close` back."""
        ...

    async def renew(self, task: Task) -> bool:
        """Extends the lease; False when it is no longer this attempt's."""
        ...

    async def reap(self, model: str, lease_s: float) -> list[Task]:
        """Puts back the tasks whose lease ran out; returns them as they are now."""
        ...

    async def release(self, model: str, gang: GangId, reason: str) -> list[Task]:
        """Puts back at once what a gang that is known to be dead still holds."""
        ...

    async def holdings(self, model: str) -> dict[GangId, int]:
        """How many tasks each gang holds."""
        ...

    async def figures(self, model: str) -> QueueFigures: ...

    async def models(self) -> list[str]:
        """All models that ever had a task, also those that are no more, until they are forgotten."""
        ...

    async def forget(self, model: str) -> bool:
        """Removes an empty queue; False while it has tasks."""
        ...

    async def leave(self, model: str, gang: GangId) -> None:
        """Forgets a gang that holds nothing."""
        ...


class Gangs(Protocol):
    """Those that run on other machines."""

    async def all(self) -> dict[GangId, GangReport]:
        """Those that live."""
        ...


class GangBoard(Gangs, Protocol):
    """Where they tell of themselves."""

    async def show(self, report: GangReport) -> None:
        """Must be repeated every few seconds: what is not fresh is not believed."""
        ...

    async def remove(self, gang: GangId) -> None: ...


class KeyStore(Protocol):
    async def add(self, key: Key) -> None: ...
    async def find(self, key_id: str) -> Key | None: ...
    async def all(self) -> list[Key]: ...
    async def revoke(self, key_id: str) -> bool: ...


class Quotas(Protocol):
    """Each tenant's account of chat requests, tokens and slots, from which gateways take shares ahead of need."""

    async def lease(self, gateway: str, tenant: TenantId, limits: ChatLimits, wish: ShareRequest) -> Grant:
        """As much of the wish as the account holds. Slots lapse unless they are asked for again within seconds;
        one gateway must have no two wishes for one tenant under way."""
        ...


class UsageLog(Protocol):
    """What tenants used, by day and model. Videos are counted by the task log, in the write that ends them."""

    async def add(self, batch: str, rows: Sequence[UsageRow]) -> None:
        """Adds to what was counted before; a batch of the same name is counted once."""
        ...

    async def read(self, days: Sequence[str], tenant: TenantId | None = None) -> list[UsageRow]:
        """Of one tenant, or of all."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that is due: the task as it ended and how many tries failed before."""

    task: Task
    tries: int


class Outbox(Protocol):
    """Webhooks to be sent. A task with a `webhook_url` enters with the write that ends it."""

    async def due(self, now: float, hold_s: float, limit: int) -> list[Delivery]:
        """What is due; hidden from others for `hold_s`, so that a crash only delays it."""
        ...

    async def done(self, task_id: TaskId) -> None: ...
    async def again(self, task_id: TaskId, at: float) -> None: ...


@dataclass(frozen=True, slots=True)
class BlobInfo:
    key: str
    size: int
    etag: str
    modified_at: float


class Blobs(Protocol):
    """Objects by key; keys look like `tasks/{id}/…`. Raises NotFound for a key that is not there."""

    async def put(self, key: str, data: bytes, content_type: str) -> None: ...
    async def get(self, key: str) -> bytes: ...
    async def head(self, key: str) -> BlobInfo: ...
    def stream(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes [start, end) in pieces of bounded size."""
        ...

    async def url(self, key: str, expires_s: float) -> str | None:
        """A presigned URL that anyone can read from, or None when the store has none."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Missing keys are fine."""
        ...

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]: ...


class Fetcher(Protocol):
    """The open internet as users may make us visit it: nothing private is reachable unless the config allows it.

    Raises InvalidRequest with code `url_not_allowed` or `url_unreachable`, TooLarge past `max_bytes`.
    """

    async def check(self, url: str) -> None:
        """Refuses what could not be visited: bad syntax, an address that is not public, an unknown host."""
        ...

    async def get(self, url: str, max_bytes: int) -> bytes: ...

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; redirects are not followed."""
        ...


class Mutex(Protocol):
    """A named right that one process holds at a time and that lapses by itself."""

    async def hold(self, name: str, owner: str, ttl_s: float) -> bool:
        """Takes or renews; False when another holds it."""
        ...

    async def drop(self, name: str, owner: str) -> None: ...
    async def holder(self, name: str) -> str | None: ...


class Process(Protocol):
    """One child process, which dies with its owner."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def terminate(self) -> None:
        """Asks it to finish what it must and leave."""
        ...

    def kill(self) -> None:
        """Kills its whole group at once."""
        ...

    async def stop(self, grace_s: float) -> int:
        """Asks, waits for `grace_s`, kills; returns the exit code."""
        ...

    def last_words(self) -> str:
        """The last line it printed."""
        ...


class Ranks(Protocol):
    """Starts the ranks of a gang on this machine."""

    async def start(self, number: int, rendezvous: str) -> tuple[Process, int]:
        """One rank, and the pipe (non-blocking, the caller closes it) on which it gives signs of life."""
        ...


class Command(Process, Protocol):
    """A child process whose output is kept."""

    def log_tail(self, limit_bytes: int) -> str:
        """The end of what it printed, from the beginning of a line."""
        ...


class Commands(Protocol):
    """Starts any program as a child process that leads its own process group."""

    async def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str]) -> Command:
        """`name` names its log; `environ` is laid over what is inherited. Raises Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class News:
    """What changed since `cursor` was another: workers that were heard or changed, gateways whose demand did. A task
    that was submitted is news, too, and changes none of these."""

    cursor: str
    workers: frozenset[WorkerId] = frozenset()
    gateways: frozenset[str] = frozenset()
    models: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """What a manager left behind: its replicas, the versions of workers' orders, which models have routes, notes."""

    replicas: Mapping[ReplicaId, Replica]
    versions: Mapping[WorkerId, int]
    routed: frozenset[str]
    notes: Notes | None


@dataclass(frozen=True, slots=True)
class Publication:
    """What changed by one decision; None stands for what is no more."""

    replicas: Mapping[ReplicaId, Replica | None] = field(default_factory=dict[ReplicaId, Replica | None])
    orders: Mapping[WorkerId, OrderSheet | None] = field(default_factory=dict[WorkerId, OrderSheet | None])
    routes: Mapping[str, ModelRoutes | None] = field(default_factory=dict[str, ModelRoutes | None])
    notes: Notes | None = None
    statuses: Mapping[str, ModelStatus] | None = None
    census: Mapping[str, int] | None = None  # replicas by `state:model`
    deeds: Mapping[str, int] = field(default_factory=dict[str, int])  # by `deed:model`, to be added up


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """What watchers want to know of the fleet; `heard_s` is how long ago each worker was last heard."""

    census: Mapping[str, int] = field(default_factory=dict[str, int])
    deeds: Mapping[str, int] = field(default_factory=dict[str, int])
    heard_s: Mapping[WorkerId, float] = field(default_factory=dict[WorkerId, float])


class Registry(Protocol):
    """What gateways, workers (through gateways) and the manager tell each other.

    Models stay until they are removed. All that belongs to one worker or one gateway lapses by itself.
    """

    async def put_model(self, model: ServedModel) -> None: ...
    async def declare_models(self, models: Sequence[ServedModel]) -> list[str]:
        """Registers what the configuration names, and removes what it named before and no longer does (returned).
        A model that was registered by `put_model` since then is not the configuration's any more, and stays."""
        ...

    async def models(self) -> dict[str, ServedModel]: ...
    async def model(self, name: str) -> ServedModel:
        """Raises NotFound."""
        ...

    async def remove_model(self, name: str) -> bool: ...

    async def enrol(self, worker: Enrolment) -> None:
        """Adds a worker, or changes all of it but whether it drains."""
        ...

    async def enrolled(self, worker: WorkerId) -> Enrolment | None: ...
    async def enrolments(self, workers: Collection[WorkerId] | None = None) -> dict[WorkerId, Enrolment]:
        """Of these workers, or of all."""
        ...

    async def set_draining(self, worker: WorkerId, draining: bool) -> None:
        """Raises NotFound."""
        ...

    async def heard(self, worker: WorkerId, beat: Beat) -> int:
        """Stores a heartbeat; returns its number. Raises NotFound for a worker that should register again."""
        ...

    async def beats(self, workers: Collection[WorkerId]) -> dict[WorkerId, Beat]:
        """The last heartbeat of each that has one."""
        ...

    async def orders(self, worker: WorkerId) -> OrderSheet | None:
        """None while the manager has not spoken: the worker should go on as it is."""
        ...

    async def wait_orders(self, worker: WorkerId, seen: int, timeout_s: float) -> OrderSheet | None:
        """The orders as soon as their version is not `seen`; None when the time is over."""
        ...

    def tail_routes(self) -> AsyncIterator[Mapping[str, ModelRoutes | None]]:
        """All routes, then what changes, for ever. Raises Unavailable; a new tail begins with all again."""
        ...

    async def statuses(self) -> dict[str, ModelStatus]:
        """How each model stood when the manager last wrote it down."""
        ...

    async def figures(self) -> FleetFigures: ...

    async def given_up(self) -> Mapping[str, GivenUp]:
        """The models that cannot be served now, and why."""
        ...

    async def report_demand(self, gateway: str, asks: Mapping[str, DemandReport]) -> None:
        """All that the gateway sees now; must be repeated every few seconds."""
        ...

    async def gateways(self) -> list[str]:
        """Those that reported demand a moment ago."""
        ...

    async def demand(self) -> dict[str, tuple[int, Mapping[str, DemandReport]]]:
        """Each gateway's last report and its number."""
        ...

    async def wait_news(self, after: str, timeout_s: float) -> News:
        """What happened past that cursor, as soon as something did; "" is the past of all."""
        ...

    async def saved(self) -> Saved: ...

    async def publish(self, right: str, owner: str, publication: Publication) -> bool:
        """Writes all or nothing; False when `owner` does not hold the mutex `right`."""
        ...


class Channel(Protocol):
    """Messages both ways, in order. Both raise Unavailable once it is closed."""

    async def send(self, message: bytes) -> None: ...
    async def receive(self) -> bytes: ...


class Tunnels(Protocol):
    """Ways to workers that nobody can reach. `changed` is called when `url` may answer otherwise."""

    changed: Callable[[], None]

    def url(self, worker: WorkerId) -> str | None:
        """Where to find a worker that holds a tunnel to us."""
        ...

    async def hold(self, worker: WorkerId, channel: Channel) -> None:
        """Carries connections through the channel until it is closed."""
        ...
