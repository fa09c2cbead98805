"""Objects: videos, previews, checkpoints, uploads."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BlobInfo:
    key: str
    size: int
    etag: str
    modified_at: float


class Blobs(Protocol):
    """Objects by key; keys look like `tasks/{id}/…`. Raises NotFound for a key that is not there."""

    async def put(self, key: str, data: bytes, content_type: str) -> None: ...
    async def get(self, key: str) -> bytes: ...
    async def head(self, key: str) -> BlobInfo: ...
    def stream(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes [start, end) in pieces of bounded size."""
        ...

    async def url(self, key: str, expires_s: float) -> str | None:
        """A presigned URL that anyone can read from, or None when the store has none."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Missing keys are fine."""
        ...

    def list(self, prefix: str) -> AsyncIterator[BlobInfo]: ...
