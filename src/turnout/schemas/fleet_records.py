"""How the registry's contents are written in Redis: JSON, validated on the way in."""

from pydantic import TypeAdapter

from turnout.domain.fleet import ModelHistory
from turnout.domain.model_status import ModelStatus
from turnout.domain.serving import (
    DemandReport,
    Enrolment,
    ModelRoutes,
    Replica,
    ReplicaOrder,
    ServedModel,
    StoredHeartbeat,
)

MODEL = TypeAdapter(ServedModel)
ENROLMENT = TypeAdapter(Enrolment)
HEARTBEAT = TypeAdapter(StoredHeartbeat)
ORDERS = TypeAdapter(tuple[ReplicaOrder, ...])
ROUTES = TypeAdapter(ModelRoutes)
DEMAND = TypeAdapter(dict[str, DemandReport])
REPLICA = TypeAdapter(Replica)
HISTORY = TypeAdapter(ModelHistory)
STATUSES = TypeAdapter(dict[str, ModelStatus])
REPLICA_COUNTS = TypeAdapter(dict[str, int])
