"""Links by which anyone sees one video until they expire or are revoked. Only a hash of the secret is stored."""

import hmac
from dataclasses import dataclass

from turnout.tasks.task_rules import TaskId
from turnout.tenants.key_rules import secret_digest

MAX_SHARES = 20  # of one video at a time


@dataclass(frozen=True, slots=True)
class VideoLink:
    """What opens one video without a key: the link of a `share`, or a URL that was signed at `issued_at`."""

    task: TaskId
    expires_at: float
    share: str = ""
    issued_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    id: str
    task: TaskId
    digest: str
    expires_at: float

    def opens(self, secret: str, now: float) -> bool:
        return hmac.compare_digest(self.digest, secret_digest(secret)) and now < self.expires_at


def new_share(share_id: str, secret: str, task: TaskId, expires_at: float) -> tuple[Share, str]:
    """The record, and the token to show once. `share_id` and `secret` are random, url-safe, without '.'."""
    return Share(share_id, task, secret_digest(secret), expires_at), f"{task}.{share_id}.{secret}"


def split_share_token(token: str) -> tuple[TaskId, str, str] | None:
    """(task, share id, secret), or None when it is not one of ours."""
    parts = token.split(".")
    return (TaskId(parts[0]), parts[1], parts[2]) if len(parts) == 3 and all(parts) else None
