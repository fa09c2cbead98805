"""URLs that open the file or the events of one video without a key, until they expire or are revoked.

A token says when it was made and until when it is good, and is signed. Nothing is stored of it: a video remembers only since
when its earlier URLs are revoked.
"""

import hmac
import re
from dataclasses import dataclass
from enum import StrEnum

from turnout.tasks.share_rules import VideoLink
from turnout.tasks.task_rules import TaskId

_TOKEN = re.compile(r"(\d{1,15})-(\d{1,15})-([0-9a-f]{64})")


class UrlPurpose(StrEnum):
    """What a URL opens: the last part of its path."""

    CONTENT = "content"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class UrlSigner:
    """`base` is how clients reach the gateways (`https://host`); without it URLs are paths."""

    secret: bytes
    base: str
    ttl_s: float

    def url(self, task: TaskId, purpose: UrlPurpose, now: float) -> str:
        times = f"{int(now * 1000)}-{int((now + self.ttl_s) * 1000)}"
        token = f"{times}-{self._signature(task, purpose, times)}"
        return f"{self.base}/v1/videos/{task}/{purpose}?token={token}"

    def read(self, task: TaskId, purpose: UrlPurpose, token: str, now: float) -> VideoLink | None:
        """None when the token is not good for this, or not any more."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        issued_ms, ends_ms, signature = found.groups()
        expected = self._signature(task, purpose, f"{issued_ms}-{ends_ms}")
        if not hmac.compare_digest(signature, expected) or now * 1000 >= int(ends_ms):
            return None
        return VideoLink(task, int(ends_ms) / 1000, issued_at=int(issued_ms) / 1000)

    def _signature(self, task: TaskId, purpose: UrlPurpose, times: str) -> str:
        return hmac.digest(self.secret, f"{purpose}\n{task}\n{times}".encode(), "sha256").hex()
