"""A gateway and a manager whose logs can take no more bytes: they serve on, also through an outage of Redis, which both
would log."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from tests.conftest import wait_until
from tests.pace import patient

from turnout.store.connection import RedisConnection
from turnout.store.mutex import Mutex
from turnout.store.valkey import redis_url, start_valkey
from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_rules import Role, mint
from turnout.tenants.key_store import KeyStore

VIDEO = {"prompt": "a red ball", "model": "wan-tiny-t2v"}


@contextmanager
def logging_to_a_full_disk(*arguments: str, **named: object) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "turnout", *arguments]
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(argv, stdout=full, stderr=full, **named)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait(patient(20))


async def test_a_full_disk_stops_neither_gateway_nor_manager(tmp_path: Path) -> None:
    directory, state = tmp_path / "redis", tmp_path / "state"
    redis = await start_valkey(directory, "test", tmp_path / "redis.log")
    url = redis_url(directory, "test")
    link = RedisConnection(url, "turnout")
    key, token = mint(
        secrets.token_hex(6), secrets.token_urlsafe(16), TenantId("acme"), Role.USER, "", time.time()
    )
    await KeyStore(link).add(key)
    options = ("--redis-url", url, "--state-dir", str(state))
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        logging_to_a_full_disk("manager", *options),
        logging_to_a_full_disk(
            "gateway", *options, "--fd", str(listening.fileno()), pass_fds=[listening.fileno()]
        ) as gateway,
    ):
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with httpx.AsyncClient(
            base_url=base, timeout=patient(15), headers={"authorization": f"Bearer {token}"}
        ) as http:

            async def ready() -> bool:
                assert gateway.poll() is None, "the gateway ended"
                try:
                    return (await http.get("/ready")).status_code == 200
                except httpx.HTTPError:
                    return False

            async def in_trouble() -> bool:
                return not await ready()

            await wait_until(ready, "the gateway", 60)
            assert (await http.post("/v1/videos", json=VIDEO)).status_code == 200
            os.kill(redis.pid, 9)
            await redis.wait()
            await wait_until(in_trouble, "the outage to be noticed")
            await asyncio.sleep(1.5)  # every loop has logged something by now
            redis = await start_valkey(directory, "test", tmp_path / "redis.log")
            await wait_until(ready, "the gateway to be ready again", 60)
            video = (await http.post("/v1/videos", json=VIDEO)).json()["id"]
            async with (
                asyncio.timeout(patient(20)),
                http.stream("GET", f"/v1/videos/{video}/events") as events,
            ):
                async for line in events.aiter_lines():
                    if line.startswith("data:"):
                        break
            dropped = [
                float(line.split()[-1])
                for line in (await http.get("/metrics")).text.splitlines()
                if line.startswith("turnout_log_lines_dropped_total ")
            ]
            assert dropped[0] > 0
        holder = Mutex(link).holder
        assert await holder("manager") is not None
    await link.close()
    await redis.stop(5)
