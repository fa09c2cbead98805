"""Shared videos: links by which others see them, and URLs that were signed for them."""

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

    async def url_secret(self) -> bytes:
        """What URLs are signed with; the same for every process. Made when it is first asked for."""
        ...

    async def revoke_urls(self, task: TaskId, at: float) -> None:
        """URLs signed up to then open nothing any more."""
        ...

    async def urls_revoked_at(self, task: TaskId) -> float:
        """The same; long ago if they never were."""
        ...
