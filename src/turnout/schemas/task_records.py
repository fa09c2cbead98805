"""The records of tenants: tasks and their events, keys, shares, webhook secrets, the audit log."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from turnout.domain.audit import AuditEntry
from turnout.domain.budgets import Budget, BudgetStanding
from turnout.domain.keys import Key
from turnout.domain.shares import Share
from turnout.domain.tasks import NOBODY_TOOK_IT, Event, Expired, Priority, Task, TaskFailure
from turnout.domain.webhook_secrets import WebhookSecret
from turnout.schemas.record_kinds import LEFT_OUT, NewerRecord, RecordKind


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
KEY = RecordKind[Key]("key", Key)
SHARE = RecordKind[Share]("share", Share)
WEBHOOK_SECRET = RecordKind[WebhookSecret]("webhook secret", WebhookSecret)
BUDGET = RecordKind[Budget]("budget", Budget)
BUDGET_STANDING = RecordKind[BudgetStanding]("budget standing", BudgetStanding, unknown={"told": LEFT_OUT})
AUDIT_ENTRY = RecordKind[AuditEntry]("audit", AuditEntry)
