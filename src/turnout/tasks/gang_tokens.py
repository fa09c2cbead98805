"""The credentials of gangs. A token names one gang, or one attempt of it at one task, and is signed; nothing is stored of it.

Whoever has it can do that gang's work and nothing else. It is good for as long as its `holder` is: the worker that was ordered
to run the gang, or the key that opened it (`gang_access`).
"""

import base64
import binascii
import hmac
import json
from dataclasses import dataclass, replace
from typing import Any

from turnout.tasks.gang_messages import GANG_TOKEN
from turnout.tasks.task_rules import GangId, Task, TaskId

_MAX_CHARS = 2048
JOB = "job"
"""A holder that is no worker or key: the manager signs for the jobs that it starts. These rights end by their time."""


@dataclass(frozen=True, slots=True)
class GangRight:
    """`task` and `attempt`: good for this attempt alone. `expires_at` 0: it ends with its holder."""

    holder: str
    gang: GangId
    model: str
    expires_at: float = 0.0
    task: TaskId | None = None
    attempt: int = 0

    def for_attempt(self, task: Task) -> "GangRight":
        return replace(self, task=task.id, attempt=task.attempt)


class GangTokens:
    """Signs the same at all gateways and managers: `secret` is the service's own."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hmac.digest(secret, b"tokens of gangs", "sha256")

    def token(self, right: GangRight) -> str:
        said = json.dumps(
            [right.holder, right.gang, right.model, right.expires_at, right.task, right.attempt]
        )
        body = base64.urlsafe_b64encode(said.encode()).decode().rstrip("=")
        return f"{GANG_TOKEN}{body}.{self._signature(body)}"

    def read(self, token: str) -> GangRight | None:
        """None when it was not signed here."""
        body, _, signature = token.removeprefix(GANG_TOKEN).partition(".")
        if not token.startswith(GANG_TOKEN) or len(token) > _MAX_CHARS or not token.isascii():
            return None
        if not hmac.compare_digest(signature, self._signature(body)):
            return None
        try:
            said: list[Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            holder, gang, model, expires_at, task, attempt = said
        except (ValueError, binascii.Error):  # signed by a version that says more
            return None
        return GangRight(holder, GangId(gang), model, expires_at, TaskId(task) if task else None, attempt)

    def _signature(self, body: str) -> str:
        return hmac.digest(self._secret, body.encode(), "sha256").hex()
