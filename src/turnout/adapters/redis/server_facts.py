"""What `turnout doctor` asks of a Redis server: its version, whether it keeps its data, its clock. Writes nothing."""

from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from turnout.domain.errors import Unavailable

_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`append_only` is None when the server does not say; `clock` is its Unix time."""

    version: str
    append_only: bool | None
    clock: float


def read_server_facts(url: str) -> ServerFacts:
    """Raises Unavailable with the reason, which never contains the password."""
    try:
        client = cast("Any", Redis).from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        with client:
            info: dict[str, Any] = client.info()
            seconds, _ = client.time()
    except (RedisError, OSError, ValueError) as err:
        raise Unavailable(str(err) or type(err).__name__) from err
    enabled = info.get("aof_enabled")
    return ServerFacts(
        str(info.get("redis_version", "?")), None if enabled is None else enabled == 1, float(seconds)
    )
