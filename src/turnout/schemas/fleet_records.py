"""How the registry's contents are written in Redis: JSON, validated on the way in."""

from pydantic import TypeAdapter

from turnout.domain.fleet import Notes
from turnout.domain.model_status import ModelStatus
from turnout.domain.serving import (
    Beat,
    DemandReport,
    Enrolment,
    ModelRoutes,
    Replica,
    ReplicaOrder,
    ServedModel,
)

MODEL = TypeAdapter(ServedModel)
ENROLMENT = TypeAdapter(Enrolment)
BEAT = TypeAdapter(Beat)
ORDERS = TypeAdapter(tuple[ReplicaOrder, ...])
ROUTES = TypeAdapter(ModelRoutes)
DEMAND = TypeAdapter(dict[str, DemandReport])
REPLICA = TypeAdapter(Replica)
NOTES = TypeAdapter(Notes)
STATUSES = TypeAdapter(dict[str, ModelStatus])
CENSUS = TypeAdapter(dict[str, int])
