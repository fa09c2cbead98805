"""The records of tenants: tasks and their events, keys, shares, webhook secrets, the audit log."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from turnout.store.record_kinds import NewerRecord, RecordKind
from turnout.tasks.task_rules import NOBODY_TOOK_IT, Event, Expired, Priority, Task, TaskFailure


class _EarlierEnd(BaseModel):
    """`expired` had a reason in place of the failure, and `dismissed` was a kind of its own."""

    at: float
    kind: Literal["expired", "dismissed"]
    reason: str | None = None
    failure: TaskFailure | None = None

    def event(self) -> Expired:
        unplaceable = TaskFailure("unplaceable", self.reason) if self.reason else None
        return Expired(self.at, self.failure or unplaceable or NOBODY_TOOK_IT)


class _EventKind(RecordKind[Event]):
    def load(self, data: bytes) -> Event:
        try:
            return super().load(data)
        except (ValidationError, NewerRecord):
            try:
                return _EarlierEnd.model_validate_json(data).event()
            except ValidationError:
                pass
            raise


TASK = RecordKind[Task]("task", Task, unknown={"stage": None, "priority": Priority.NORMAL})
EVENT = _EventKind("event", Annotated[Event, Field(discriminator="kind")])
