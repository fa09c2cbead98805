"""What a worker and a gateway say to each other over HTTP.

A worker only ever calls out. It registers once with a worker key, gets an id and a secret of its own, and from
then on sends its state; the answer says which replicas it should have. The answer is the whole truth, not a
change: a lost or repeated message does no harm. The gateway holds a heartbeat open until the orders change or
`wait_s` has passed, so that orders arrive at once and no one calls in.
"""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, ReplicaReport
from turnout.fleet.worker_rules import OrderSheet, Standing, StoredHeartbeat
from turnout.tenants.gpu_time_rules import GpuReport
from turnout.validation import Body, PeerMessage

_MAX_COUNTS, _MAX_EPOCH = 2_000, 100
_MAX_FINDINGS, _MAX_REASON = 16, 400

EVICTED = "worker_evicted"
"""The code of the error that an evicted worker gets. It ends then, and does not come back by itself."""


def _few_findings(machine: Machine) -> Machine:
    long = any(len(one.about) > 40 or len(one.reason) > _MAX_REASON for one in machine.findings)
    if long or len(machine.findings) > _MAX_FINDINGS:
        raise ValueError(f"more than {_MAX_FINDINGS} findings, or one over {_MAX_REASON} characters")
    return machine


_Machine = Annotated[Machine, AfterValidator(_few_findings)]


class Registration(PeerMessage):
    """`known_as` and `secret` are what an earlier registration gave, so that a restarted worker stays itself.

    `url` is how gateways reach it, or `tunnel:`. `probe_key` is made up by the worker: whoever answers at `url` must
    prove that it knows it (`tokens.probe_answer`), so that nobody can register what is not theirs."""

    name: str = Field(max_length=100)
    url: str = Field(max_length=500)
    probe_key: str = Field(min_length=32, max_length=128)
    machine: _Machine
    known_as: WorkerId | None = None
    secret: str | None = None


class Registered(PeerMessage):
    """`key` is the worker key that was made for whoever registered with a join code: it joins with that from now on."""

    id: WorkerId
    secret: str
    heartbeat_s: float = Field(ge=0.1, le=60)
    key: str | None = None


def _bounded(report: GpuReport | None) -> GpuReport | None:
    if report is not None and (len(report.counts) > _MAX_COUNTS or len(report.epoch) > _MAX_EPOCH):
        raise ValueError(f"more than {_MAX_COUNTS} counts, or an epoch over {_MAX_EPOCH} characters")
    return report


class Heartbeat(PeerMessage):
    """`seen` is the version of the orders that the worker has; other orders are sent at once. A worker that is `leaving` stops
    all replicas and starts none."""

    machine: _Machine
    replicas: tuple[ReplicaReport, ...]
    seen: int = 0
    wait_s: float = Field(default=0.0, ge=0, le=30)
    gpu_time: Annotated[GpuReport | None, AfterValidator(_bounded)] = None
    leaving: bool = False


class WorkerOrders(PeerMessage):
    """`gateways` names all that are there, for a worker that must hold a tunnel to each. `tokens` are the rights of the gangs
    among the orders, by replica."""

    version: int
    orders: tuple[ReplicaOrder, ...] = Field(max_length=256)
    tokens: dict[ReplicaId, str] = Field(default={}, max_length=256)
    gateways: tuple[str, ...] = Field(default=(), max_length=1024)


class Draining(Body):
    """Whether a worker gets nothing new and its replicas leave once they are idle."""

    draining: bool = True


class WorkerEvicted(BaseModel):
    """`key` is the worker key that it joined with: unless `key_revoked`, whoever has it can join again."""

    id: WorkerId
    key: str
    key_revoked: bool = False


class GpuTimeTakenBack(BaseModel):
    """`seconds` of GPUs that are nobody's cost any more, by model; by no model what was free."""

    id: WorkerId
    seconds: dict[str, float]


class ReplicaShown(BaseModel):
    """A replica as its worker reports it, with what its orders say: the model and the GPUs. `model` is None for one that is
    ordered no more."""

    id: ReplicaId
    phase: Phase
    busy: int = 0
    detail: str = ""
    model: str | None = None
    gpus: tuple[int, ...] = ()


def replicas_shown(beat: StoredHeartbeat, sheet: OrderSheet | None) -> tuple[ReplicaShown, ...]:
    orders = {order.replica: order for order in sheet.orders} if sheet else {}
    return tuple(
        ReplicaShown(
            id=report.id,
            model=order.model.name if (order := orders.get(report.id)) else None,
            gpus=order.gpus if order else (),
            phase=report.phase,
            busy=report.busy,
            detail=report.detail,
        )
        for report in beat.reports
    )


class WorkerShown(BaseModel):
    """A worker as admins see it; `machine` and `heard_ago_s` are None until its first heartbeat, and an hour after its
    last. `key` is the id of the key that it joined with; `could_run` names the registered models that fit there."""

    id: WorkerId
    name: str
    url: str
    draining: bool
    key: str = ""
    standing: Standing = Standing.GONE
    heard_ago_s: float | None = None
    machine: Machine | None
    replicas: tuple[ReplicaShown, ...]
    could_run: list[str] = []


class WorkerList(BaseModel):
    data: list[WorkerShown]
