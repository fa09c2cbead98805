"""How tasks, events and keys are written in Redis: JSON, validated on the way in. Records of earlier versions load."""

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from turnout.domain.keys import Key
from turnout.domain.tasks import NOBODY_TOOK_IT, Event, Expired, Priority, Stage, Task, TaskFailure

_TASK = TypeAdapter(Task)
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


class _EarlierEnd(BaseModel):
    """`expired` had a reason in place of the failure, and `dismissed` was a kind of its own."""

    at: float
    kind: Literal["expired", "dismissed"]
    reason: str | None = None
    failure: TaskFailure | None = None

    def event(self) -> Expired:
        unplaceable = TaskFailure("unplaceable", self.reason) if self.reason else None
        return Expired(self.at, self.failure or unplaceable or NOBODY_TOOK_IT)


_KEY = TypeAdapter(Key)


FORMAT = 1
"""Grows when an earlier version could not read a task's record. What it knows nothing of does it no harm: further fields
are ignored, and a stage or priority without a name here counts as none and as normal."""


class NewerRecord(ValueError):
    """The record was written by a newer version; this one must leave it as it is."""


def dump_task(task: Task) -> bytes:
    return b'{"format":%d,' % FORMAT + _TASK.dump_json(task)[1:]


def load_task(data: bytes) -> Task:
    try:
        return _TASK.validate_json(data)
    except ValidationError as err:
        known = from_json(data)
        if not isinstance(known, dict):
            raise
        fields = cast("dict[str, Any]", known)
        written_in = fields.get("format", FORMAT)
        if isinstance(written_in, int) and written_in > FORMAT:
            raise NewerRecord(f"format {written_in} is newer than {FORMAT}") from err
        if fields.get("stage") not in [*Stage]:
            fields["stage"] = None
        if fields.get("priority") not in [*Priority]:
            fields.pop("priority", None)
        return _TASK.validate_json(to_json(fields))


def dump_event(event: Event) -> bytes:
    return _EVENT.dump_json(event)


def load_event(data: bytes) -> Event:
    try:
        return _EVENT.validate_json(data)
    except ValidationError:
        return _EarlierEnd.model_validate_json(data).event()


def dump_key(key: Key) -> bytes:
    return _KEY.dump_json(key)


def load_key(data: bytes) -> Key:
    return _KEY.validate_json(data)
