"""The records of the fleet: what is registered, what workers and gateways report, what the manager decided."""

from turnout.domain.fleet import ModelHistory
from turnout.domain.gpu_time import GpuReport
from turnout.domain.model_status import ModelState, ModelStatus
from turnout.domain.serving import (
    DemandReport,
    Enrolment,
    ModelRoutes,
    Phase,
    Replica,
    ReplicaOrder,
    ServedModel,
    StoredHeartbeat,
)
from turnout.domain.slots import GangReport, GangTurns
from turnout.schemas.record_kinds import LEFT_OUT, RecordKind

_PHASE = {"phase": Phase.STARTING}  # it is there, takes its memory, and serves nobody

MODEL = RecordKind[ServedModel]("model", ServedModel)
ENROLMENT = RecordKind[Enrolment]("worker", Enrolment)
HEARTBEAT = RecordKind[StoredHeartbeat]("heartbeat", StoredHeartbeat, unknown={**_PHASE, "engines": LEFT_OUT})
ORDERS = RecordKind[tuple[ReplicaOrder, ...]]("orders", tuple[ReplicaOrder, ...])
ROUTES = RecordKind[ModelRoutes]("routes", ModelRoutes)
DEMAND = RecordKind[dict[str, DemandReport]]("demand", dict[str, DemandReport])
REPLICA = RecordKind[Replica]("replica", Replica, unknown=_PHASE)
HISTORY = RecordKind[ModelHistory]("history", ModelHistory)
STATUSES = RecordKind[dict[str, ModelStatus]](
    "statuses", dict[str, ModelStatus], unknown={"state": ModelState.STARTING, "cause": None}
)
REPLICA_COUNTS = RecordKind[dict[str, int]]("census", dict[str, int])
GPU_REPORT = RecordKind[GpuReport]("gpu_report", GpuReport)
GANG = RecordKind[GangReport]("gang", GangReport)
GANG_TURNS = RecordKind[GangTurns]("gang turns", GangTurns)
