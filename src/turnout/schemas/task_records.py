"""How tasks, events and keys are written in Redis: JSON, validated on the way in. Records of earlier versions load."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from turnout.domain.keys import Key
from turnout.domain.tasks import NOBODY_TOOK_IT, Event, Expired, Task, TaskFailure

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


def dump_task(task: Task) -> bytes:
    return _TASK.dump_json(task)


def load_task(data: bytes) -> Task:
    return _TASK.validate_json(data)


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
