"""How the registry's contents are written in Redis: JSON, validated on the way in."""

from pydantic import TypeAdapter

from turnout.domain.fleet import Notes
from turnout.domain.serving import (
    Assignment,
    Beat,
    DemandReport,
    Enrolment,
    ModelRoutes,
    Replica,
    ServedModel,
)

MODEL = TypeAdapter(ServedModel)
ENROLMENT = TypeAdapter(Enrolment)
BEAT = TypeAdapter(Beat)
ASSIGNMENTS = TypeAdapter(tuple[Assignment, ...])
ROUTES = TypeAdapter(ModelRoutes)
ASKS = TypeAdapter(dict[str, DemandReport])
REPLICA = TypeAdapter(Replica)
NOTES = TypeAdapter(Notes)
STATUS = TypeAdapter(dict[str, str])
CENSUS = TypeAdapter(dict[str, int])
