"""The embedded server keeps what it has answered, on a disk that is full, too."""

import asyncio
import os
import resource
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.ports import free_port

from turnout.errors import Misconfigured, Unavailable
from turnout.store.connection import RedisConnection, translated
from turnout.store.store_settings import AcceptAfter
from turnout.store.valkey import RedisListening, exec_valkey, redis_url, start_valkey


@pytest.mark.parametrize(("fsync", "accept_after"), [("always", "write"), ("everysec", "fsync")])
async def test_what_was_answered_before_the_disk_was_full_is_there_after_a_kill(
    tmp_path: Path, fsync: str, accept_after: AcceptAfter
) -> None:
    """On the embedded server as it is; and on one that syncs every second, when it is asked what is on its disk."""
    password, log = "test", tmp_path / "log"
    server = await start_valkey(tmp_path / "redis", password, log)
    link = RedisConnection(redis_url(tmp_path / "redis", password), "turnout", accept_after)
    assert (await link.client.config_get("appendfsync"))["appendfsync"] == "always"
    await link.client.config_set("appendfsync", fsync)
    answered: list[str] = []
    try:
        # A limit on the size of its files fails its writes as a full disk does, without a disk to fill.
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            for number in range(2_000):
                async with translated():
                    await link.promise("SET", f"key-{number}", "x" * 5_000)
                answered.append(f"key-{number}")
        except Unavailable:
            pass
        assert 10 < len(answered) < 2_000, "it took some, and refused when the disk was full"
        server.kill()
        await server.wait()
        server = await start_valkey(tmp_path / "redis", password, log)
        assert [key for key in answered if not await link.client.exists(key)] == []
        assert await link.client.set("after", "1"), "with room again it takes writes again"
    finally:
        await link.close()
        await server.stop(5)


async def test_turnout_redis_serves_others_and_keeps_everything_when_it_is_told_to_end(
    tmp_path: Path,
) -> None:
    """As a pod's only process: the password by the environment, SIGTERM at the end."""
    port = free_port()
    words = ["redis", "--port", str(port), "--dir", str(tmp_path / "data")]
    environ = {**os.environ, "TURNOUT_REDIS_PASSWORD": "a-password"}
    link = RedisConnection(f"redis://:a-password@127.0.0.1:{port}/0", "turnout")
    for expected in (None, b"1"):
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "turnout", *words), env=environ, stdout=asyncio.subprocess.DEVNULL
        )
        try:

            async def answers() -> bool:
                try:
                    await link.ping()
                except Unavailable:
                    return False
                return True

            await wait_until(answers, "the server")
            assert await link.client.get("kept") == expected
            await link.client.set("kept", "1")
            assert (await link.client.config_get("appendonly"))["appendonly"] == "yes"
            server.terminate()
            assert await asyncio.wait_for(server.wait(), 30) == 0
        finally:
            if server.returncode is None:
                server.kill()
    await link.close()
    open_to_all = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnout", *words),
        env={k: v for k, v in os.environ.items() if k != "TURNOUT_REDIS_PASSWORD"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(open_to_all.communicate(), 30)
    assert open_to_all.returncode == 2 and b"needs a password" in said


@pytest.mark.parametrize("password", ["two words", "a\nport 1", 'a"b', "a#b"])
def test_a_setting_brings_no_others_along(tmp_path: Path, password: str) -> None:
    with pytest.raises(Misconfigured):
        exec_valkey(tmp_path, password, RedisListening("127.0.0.1", 1))
