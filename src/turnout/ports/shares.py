"""Shared videos."""

from collections.abc import Sequence
from typing import Protocol

from turnout.domain.shares import Share
from turnout.domain.tasks import TaskId


class ShareStore(Protocol):
    async def add(self, share: Share) -> None: ...
    async def find(self, task: TaskId, share_id: str) -> Share | None: ...

    async def of(self, task: TaskId) -> Sequence[Share]:
        """Those that were not revoked, also expired ones that are still there."""
        ...

    async def remove(self, task: TaskId, *share_ids: str) -> int:
        """How many of them there were."""
        ...
