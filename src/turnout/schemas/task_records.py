"""How tasks, events and keys are written in Redis: JSON, validated on the way in."""

from typing import Annotated

from pydantic import Field, TypeAdapter

from turnout.domain.keys import Key
from turnout.domain.tasks import Event, Task

_TASK = TypeAdapter(Task)
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_KEY = TypeAdapter(Key)


def dump_task(task: Task) -> bytes:
    return _TASK.dump_json(task)


def load_task(data: bytes) -> Task:
    return _TASK.validate_json(data)


def dump_event(event: Event) -> bytes:
    return _EVENT.dump_json(event)


def load_event(data: bytes) -> Event:
    return _EVENT.validate_json(data)


def dump_key(key: Key) -> bytes:
    return _KEY.dump_json(key)


def load_key(data: bytes) -> Key:
    return _KEY.validate_json(data)
