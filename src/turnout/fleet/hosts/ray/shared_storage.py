"""What all machines of a cluster must have in common: Redis, and the objects."""

from collections.abc import Collection

from turnout.errors import Misconfigured
from turnout.run.config import Config

_LOOPBACK = "127.0.0.1"  # of a cluster of one machine
_SHARE = "set blobs to s3://bucket/prefix; or to a directory that all nodes mount at the same path, and blobs_shared to true"


def refuse_local(config: Config, elsewhere: Collection[str]) -> None:
    """`elsewhere` are the addresses of nodes on other machines; what lies on this one alone is of no use to them."""
    if not elsewhere:
        return
    others = f"nodes on other machines ({', '.join(sorted(elsewhere))})"
    if (config.redis.redis_url or "unix:").startswith("unix:"):
        raise Misconfigured(
            f"{others} cannot reach the embedded Redis: give a --redis-url that all of them reach"
        )
    if not config.objects.shared:
        raise Misconfigured(f"{others} do not have the directory of videos: {_SHARE}")


def refuse_local_anywhere(config: Config) -> None:
    """For an application that may be built and run on any node, also on those that are yet to come."""
    if not config.redis.redis_url:
        raise Misconfigured("on Ray every node needs the same Redis: set redis_url")
    if not config.objects.shared:
        raise Misconfigured(f"on Ray every node needs the same objects: {_SHARE}")


def refuse_rank(objects_at: str | None, address: str) -> None:
    """For a rank at `address`; `objects_at` is the node that has the objects, where not all have them. Elsewhere it would
    make a video that nobody can download."""
    if objects_at not in (None, address) and _LOOPBACK not in (objects_at, address):
        raise Misconfigured(
            f"the directory of videos is on {objects_at} alone, this rank on {address}: {_SHARE}"
        )
