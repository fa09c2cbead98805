"""What is recorded of acts on keys, people, models, workers and budgets. Of a person it tells her id, and nothing personal: it
stays when she is removed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MAX_AUDIT_ENTRIES = 20_000


class AuditAction(StrEnum):
    KEY_CREATED = "key.created"
    KEY_ROTATED = "key.rotated"
    KEY_REVOKED = "key.revoked"
    SESSION_OPENED = "session.opened"
    SESSIONS_ENDED = "sessions.ended"
    INVITE_CREATED = "invite.created"
    INVITE_REVOKED = "invite.revoked"
    PERSON_JOINED = "person.joined"
    PERSON_CHANGED = "person.changed"
    PERSON_DISABLED = "person.disabled"
    PERSON_ENABLED = "person.enabled"
    PERSON_REMOVED = "person.removed"
    MODEL_REGISTERED = "model.registered"
    MODEL_WOKEN = "model.woken"
    MODEL_STOPPED = "model.stopped"
    MODEL_REMOVED = "model.removed"
    MODEL_PULLED = "model.pulled"
    MODEL_PULL_CANCELLED = "model.pull_cancelled"
    MODEL_SHARE_SET = "model.share_set"
    JOIN_CODE_CREATED = "join_code.created"
    WORKER_REGISTERED = "worker.registered"
    WORKER_DRAINED = "worker.drained"
    WORKER_EVICTED = "worker.evicted"
    WORKER_GPU_TIME_TAKEN_BACK = "worker.gpu_time_taken_back"
    WEBHOOK_SECRET_ROTATED = "webhook_secret.rotated"
    BUDGET_SET = "budget.set"
    BUDGET_REMOVED = "budget.removed"
    TASK_CANCELLED = "task.cancelled"


WAYS_IN = frozenset(
    {
        AuditAction.SESSION_OPENED,
        AuditAction.KEY_CREATED,
        AuditAction.WEBHOOK_SECRET_ROTATED,
        AuditAction.WORKER_REGISTERED,
    }
)
"""What others than admins may do, and only so often. What ends something is never refused for that."""


class NoticeGroup(StrEnum):
    """What operators may want to hear of."""

    BUDGETS = "budgets"
    PEOPLE = "people"
    KEYS = "keys"
    WORKERS = "workers"
    MODELS = "models"


NOTICED = {
    NoticeGroup.BUDGETS: frozenset[AuditAction](),  # no acts: what was spent
    NoticeGroup.PEOPLE: frozenset(
        {
            AuditAction.PERSON_JOINED,
            AuditAction.PERSON_DISABLED,
            AuditAction.PERSON_ENABLED,
            AuditAction.PERSON_REMOVED,
        }
    ),
    NoticeGroup.KEYS: frozenset(
        {
            AuditAction.KEY_CREATED,
            AuditAction.KEY_ROTATED,
            AuditAction.KEY_REVOKED,
            AuditAction.INVITE_CREATED,
            AuditAction.INVITE_REVOKED,
        }
    ),
    NoticeGroup.WORKERS: frozenset(
        {AuditAction.WORKER_REGISTERED, AuditAction.WORKER_DRAINED, AuditAction.WORKER_EVICTED}
    ),
    NoticeGroup.MODELS: frozenset({AuditAction.MODEL_REGISTERED, AuditAction.MODEL_REMOVED}),
}
"""The acts of each group; a model that cannot be served is told of with its group, too."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """`actor` is the id of the key that was used, or who else did it; `address` is where the request came from. There is
    never a secret in it."""

    at: float
    actor: str
    action: AuditAction | str  # a newer version has more
    target: str
    address: str = ""
    detail: Mapping[str, str] = field(default_factory=dict[str, str])
