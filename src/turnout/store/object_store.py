"""Objects in a directory or in S3, through one library. Only S3 can hand out URLs of its own."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from turnout.errors import Misconfigured, NotFound, Unavailable, no_such


@dataclass(frozen=True, slots=True)
class BlobInfo:
    key: str
    size: int
    etag: str
    modified_at: float


_PIECE_BYTES = 256 * 1024


@asynccontextmanager
async def _translated(key: str) -> AsyncGenerator[None]:
    try:
        yield
    except FileNotFoundError as err:
        raise no_such("object", key, "key") from err
    except (BaseError, OSError) as err:
        raise Unavailable(
            f"The object store did not answer: {str(err).partition(chr(10))[0]}", retry_after_s=1.0
        ) from err


class Blobs:
    """Objects by key; keys look like `tasks/{id}/…`. Raises NotFound for a key that is not there."""

    def __init__(self, store: LocalStore | S3Store) -> None:
        self._store = store

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        # A directory has nowhere to keep a content type.
        attributes = {"Content-Type": content_type} if isinstance(self._store, S3Store) else None
        async with _translated(key):
            await obstore.put_async(self._store, key, data, attributes=cast("Any", attributes))

    async def put_stream(self, key: str, pieces: AsyncIterator[bytes], content_type: str) -> None:
        """An object that is never all in memory. It appears when the last piece has come; if `pieces` raises, it never does."""
        attributes = {"Content-Type": content_type} if isinstance(self._store, S3Store) else None
        async with _translated(key):
            await obstore.put_async(
                self._store, key, pieces, attributes=cast("Any", attributes), max_concurrency=2
            )

    async def get(self, key: str) -> bytes:
        async with _translated(key):
            found = await obstore.get_async(self._store, key)
            return bytes(await found.bytes_async())

    async def head(self, key: str) -> BlobInfo:
        async with _translated(key):
            return _info(await obstore.head_async(self._store, key))

    async def stream(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes [start, end) in pieces of bounded size."""
        while start < end:
            stop = min(start + _PIECE_BYTES, end)
            async with _translated(key):
                piece = await obstore.get_range_async(self._store, key, start=start, end=stop)
            yield bytes(piece)
            start = stop

    async def url(self, key: str, expires_s: float) -> str | None:
        """A presigned URL that anyone can read from, or None when the store has none."""
        return await self._signed("GET", key, expires_s)

    async def put_url(self, key: str, expires_s: float) -> str | None:
        """A presigned URL that anyone can write this one object to, or None when the store has none."""
        return await self._signed("PUT", key, expires_s)

    async def _signed(self, method: Literal["GET", "PUT"], key: str, expires_s: float) -> str | None:
        if not isinstance(self._store, S3Store):
            return None
        async with _translated(key):
            return await obstore.sign_async(self._store, method, key, timedelta(seconds=expires_s))

    async def delete(self, keys: Sequence[str]) -> None:
        """Missing keys are fine."""
        for key in keys:
            try:
                async with _translated(key):
                    await obstore.delete_async(self._store, key)
            except NotFound:
                continue

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        async with _translated(prefix):
            async for batch in cast("Any", obstore).list(self._store, prefix=prefix):
                for found in batch:
                    yield _info(found)


def open_blobs(where: str, endpoint: str | None = None) -> Blobs:
    """`where` is a directory or `s3://bucket/prefix`; S3 credentials and region come from AWS's own variables."""
    if where.startswith("s3://"):
        bucket, _, prefix = where.removeprefix("s3://").partition("/")
        # Our callers know how long to wait; the library's own three minutes would hide an outage.
        options: dict[str, Any] = {
            "prefix": prefix or None,
            "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
        }
        if endpoint:
            options |= {
                "endpoint": endpoint,
                "virtual_hosted_style_request": False,
                "client_options": {"allow_http": endpoint.startswith("http://")},
            }
        return Blobs(S3Store(bucket, **options))
    if "://" in where:
        raise Misconfigured(f"blobs: {where} is neither a directory nor s3://bucket/prefix")
    path = Path(where).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as err:
        raise Misconfigured(f"blobs: {path} cannot be made: {err.strerror}") from err
    return Blobs(LocalStore(path, automatic_cleanup=True))


def _info(found: Any) -> BlobInfo:
    return BlobInfo(
        found["path"], found["size"], (found["e_tag"] or "").strip('"'), found["last_modified"].timestamp()
    )
