"""The embedded server keeps what it has answered, on a disk that is full, too."""

import resource
from pathlib import Path

import pytest

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.valkey import redis_url, start_valkey
from turnout.config import AcceptAfter
from turnout.domain.errors import Unavailable


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
