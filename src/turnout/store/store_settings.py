"""Settings of Redis, of the object store, and of calls to addresses outside."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator

from turnout.setting_types import SECRET, ServerUrl

_REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+sentinel://")

AcceptAfter: TypeAlias = Literal["write", "fsync", "replica"]


def _redis_url(url: str) -> str:
    if not url.startswith(_REDIS_SCHEMES):
        raise ValueError("a Redis URL begins with redis://, rediss://, unix:// or redis+sentinel://")
    try:
        if url.startswith(("redis://", "rediss://")):
            _ = urlsplit(url).port
    except ValueError as err:  # without its words, which may quote the password
        raise ValueError(
            "a Redis URL looks like redis://host:6379/0; signs in its password are %-escaped"
        ) from err
    return url


def _blobs(where: str) -> str:
    if "://" in where and not where.startswith("s3://"):
        raise ValueError("objects go to a directory or to s3://bucket/prefix")
    return where


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """`redis_url` None means an embedded server in the state directory."""

    redis_url: Annotated[str, AfterValidator(_redis_url)] | None = field(default=None, metadata=SECRET)
    redis_password: str | None = field(default=None, metadata=SECRET)
    redis_sentinel_password: str | None = field(default=None, metadata=SECRET)
    redis_prefix: str = "turnout"
    accept_after: AcceptAfter = "fsync"


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """`blobs` None means `objects/` in the state directory."""

    blobs: Annotated[str, AfterValidator(_blobs)] | None = None
    blobs_endpoint: ServerUrl | None = None
    blobs_shared: bool = False

    @property
    def shared(self) -> bool:
        """Whether other machines reach the same objects."""
        return self.blobs_shared or (self.blobs or "").startswith("s3://")


@dataclass(frozen=True, slots=True)
class OutboundSettings:
    allow_private_urls: bool = False
    ca_file: Path | None = None
