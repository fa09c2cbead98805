"""A first word with a Redis server, over a plain socket: is it there, how old is it, does it keep what it is told.

Doctor must be able to say what is wrong where nothing else starts; so it asks by itself, in four commands."""

import socket
import ssl
from dataclasses import dataclass
from io import BufferedRWPair
from urllib.parse import parse_qs, unquote, urlsplit

TIMEOUT_S = 3.0
MAX_REPLY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """`append_only` None means that the server would not say; `clock` is its Unix time."""

    version: str
    append_only: bool | None
    clock: float


class ProbeFailed(Exception):
    """Says in words what went wrong."""


def probe_redis(url: str, timeout_s: float = TIMEOUT_S) -> RedisFacts:
    parts = urlsplit(url)
    try:
        with _connected(url, timeout_s) as connection, connection.makefile("rwb") as stream:
            password = unquote(parts.password or "") or parse_qs(parts.query).get("password", [""])[0]
            if password:
                _call(stream, "AUTH", *([unquote(parts.username)] if parts.username else []), password)
            _call(stream, "PING")
            info = dict(
                line.split(":", 1) for line in _text(_call(stream, "INFO")).splitlines() if ":" in line
            )
            seconds = _call(stream, "TIME")
    except (OSError, EOFError, ValueError) as err:
        raise ProbeFailed(str(err) or type(err).__name__) from err
    enabled = info.get("aof_enabled")
    return RedisFacts(
        info.get("redis_version", "?"),
        None if enabled is None else enabled.strip() == "1",
        float(_text(seconds[0])) if isinstance(seconds, list) and seconds else 0.0,
    )


def _connected(url: str, timeout_s: float) -> socket.socket:
    parts = urlsplit(url)
    match parts.scheme:
        case "unix":
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(timeout_s)
            connection.connect(unquote(parts.path))
            return connection
        case "redis" | "rediss":
            host = parts.hostname or "127.0.0.1"
            connection = socket.create_connection((host, parts.port or 6379), timeout_s)
            if parts.scheme == "redis":
                return connection
            return ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        case other:
            raise ProbeFailed(f"redis_url starts with redis://, rediss:// or unix://, not {other}://")


Reply = bytes | int | list[bytes]


def _call(stream: BufferedRWPair, *words: str) -> Reply:
    parts = [word.encode() for word in words]
    stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
    stream.flush()
    return _reply(stream)


def _reply(stream: BufferedRWPair) -> Reply:
    line = stream.readline(MAX_REPLY_BYTES)
    if not line.endswith(b"\r\n"):
        raise ProbeFailed("something answers there that does not speak Redis")
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest
        case b":":
            return int(rest)
        case b"-":
            raise ProbeFailed(rest.decode(errors="replace"))
        case b"$" if 0 <= int(rest) <= MAX_REPLY_BYTES:
            return stream.read(int(rest) + 2)[:-2]
        case b"*" if 0 <= int(rest) <= 16:
            return [item for item in (_reply(stream) for _ in range(int(rest))) if isinstance(item, bytes)]
        case _:
            raise ProbeFailed("something answers there that does not speak Redis")


def _text(reply: Reply) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply)
