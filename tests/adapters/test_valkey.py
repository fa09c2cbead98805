"""The embedded server keeps what it has answered, on a disk that is full, too."""

import resource
from pathlib import Path

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.valkey import redis_url, start_valkey
from turnout.domain.errors import Unavailable


async def test_what_was_answered_before_the_disk_was_full_is_there_after_a_kill(tmp_path: Path) -> None:
    password, log = "test", tmp_path / "log"
    server = await start_valkey(tmp_path / "redis", password, log)
    link = RedisConnection(redis_url(tmp_path / "redis", password), "turnout")
    answered: list[str] = []
    try:
        # A limit on the size of its files fails its writes as a full disk does, without a disk to fill.
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            for number in range(2_000):
                async with translated():
                    await link.client.set(f"key-{number}", "x" * 1_000)
                answered.append(f"key-{number}")
        except Unavailable:
            pass
        assert 50 < len(answered) < 2_000, "it took some, and refused when the disk was full"
        server.kill()
        await server.wait()
        server = await start_valkey(tmp_path / "redis", password, log)
        assert [key for key in answered if not await link.client.exists(key)] == []
        assert await link.client.set("after", "1"), "with room again it takes writes again"
    finally:
        await link.close()
        await server.stop(5)
