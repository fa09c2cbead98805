"""What `turnout doctor` asks of a Redis server: its version, whether and how it keeps its data, its clock. Writes nothing."""

from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from turnout.errors import Unavailable
from turnout.store.server_url import read_sentinel_url

_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server does not say is None; `clock` is its Unix time."""

    version: str
    append_only: bool | None
    fsync: str | None
    eviction: str | None
    replicas: int
    clock: float


def read_server_facts(url: str) -> ServerFacts:
    """Of the primary, where Sentinels watch. Raises Unavailable with the reason, which never contains the password."""
    try:
        with _client(url) as client:
            info: dict[str, Any] = client.info()
            seconds, _ = client.time()
            try:
                fsync = client.config_get("appendfsync").get("appendfsync")
            except ResponseError:  # a hosted server may not tell
                fsync = None
    except (RedisError, OSError, ValueError) as err:
        raise Unavailable(str(err) or type(err).__name__) from err
    enabled = info.get("aof_enabled")
    return ServerFacts(
        str(info.get("redis_version", "?")),
        None if enabled is None else enabled == 1,
        fsync,
        info.get("maxmemory_policy"),
        int(info.get("connected_slaves", 0)),
        float(seconds),
    )


def _client(url: str) -> Any:
    options: dict[str, Any] = {
        "socket_timeout": _TIMEOUT_S,
        "socket_connect_timeout": _TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    named = read_sentinel_url(url)
    if named is None:
        return cast("Any", Redis).from_url(url, decode_responses=True, **options)
    sentinel = cast("Any", Sentinel)(
        named.sentinels, sentinel_kwargs={**options, "password": named.sentinel_password}
    )
    own = {"db": named.db, "username": named.user, "password": named.password, "decode_responses": True}
    return sentinel.master_for(named.service, **own, **options)
