"""The records of the fleet: what is registered, what workers and gateways report, what the manager decided."""

from turnout.fleet.fleet_rules import ModelHistory
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.model_rules import Model
from turnout.fleet.ray_rules import GangWaits
from turnout.fleet.replica_rules import Phase, Replica, ReplicaOrder
from turnout.fleet.route_rules import DemandReport, ModelRoutes
from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.fleet.worker_rules import Enrolment, StoredHeartbeat
from turnout.store.record_kinds import LEFT_OUT, RecordKind
from turnout.tenants.gpu_time_rules import BookedReport

_PHASE = {"phase": Phase.STARTING}  # it is there, takes its memory, and serves nobody

MODEL = RecordKind[Model]("model", Model)
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
GPU_REPORT = RecordKind[BookedReport]("gpu_report", BookedReport)
GANG = RecordKind[GangReport]("gang", GangReport)
GANG_WAITS = RecordKind[GangWaits]("gang turns", GangWaits)
