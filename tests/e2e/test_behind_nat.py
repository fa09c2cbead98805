"""A rented machine that can only call out renders and chats for a service elsewhere: its network is a namespace of its own
behind a firewall, with 50 ms of delay, 1 % of packets lost and 20 Mbit/s (`./dev test-nat`, as root)."""

import asyncio
import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.conftest import wait_until
from tests.e2e.conftest import llamacpp
from tests.gateways import picture
from tests.nat_box import Box, behind_nat
from tests.service import Service, running_service
from tests.workers import JoinedWorker, list_workers, set_aside_its_own_worker, worker_key

pytestmark = [pytest.mark.netns, pytest.mark.timeout(1800)]

DELAY_S = 0.025
CUT_S = 60.0
T2V, I2V = "wan-tiny-t2v", "wan-tiny-ti2v"
MODELS = {
    T2V: {"weights": f"builtin:{T2V}", "family": T2V, "ulysses": 2, "idle_s": 600},
    I2V: {"weights": f"builtin:{I2V}", "family": I2V, "ulysses": 1, "idle_s": 5},
    "chat": llamacpp(idle_s=600.0),
    "outer": {"weights": f"builtin:{T2V}", "family": T2V, "runner": "external"},
}


@asynccontextmanager
async def delayed(listen: str, to: tuple[str, int]) -> AsyncIterator[int]:
    """A port whose bytes arrive late, in both directions; as many may be under way as the link carries."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def deliver() -> None:
            while True:
                at, data = await under_way.get()
                await asyncio.sleep(at - time.monotonic())
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        with contextlib.suppress(OSError):
            while True:
                data = await reader.read(65536)
                await under_way.put((time.monotonic() + DELAY_S, data))
                if not data:
                    break
            await delivering
        delivering.cancel()
        writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*to)
        except OSError:
            return writer.close()
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(carry, listen, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class RentedWorker(JoinedWorker):
    """The command that the page prints, typed in the box."""

    box = ""

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", self.box, sys.executable, "-m", "turnout", *self._argv),
                env=self._environ,
                stdout=log,
                stderr=log,
            )

    def ranks(self) -> list[psutil.Process]:
        """What the fork servers of its gangs have forked."""
        found: list[psutil.Process] = []
        for process in self.process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if words[-1:] and "gang" in words and "turnout.worker.subreaper" not in words:
                    found += [rank for server in process.children() for rank in server.children()]
        return found

    def events(self, name: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        for path in self.home.rglob("*.log"):
            for line in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    if isinstance(said, dict) and said.get("event") == name:
                        lines.append(said)
        return lines


class Story:
    """One service, one rented machine, and what users do."""

    def __init__(self, service: Service, worker: RentedWorker, http: httpx.AsyncClient) -> None:
        self.service, self.worker, self.http = service, worker, http

    async def submit(self, **fields: Any) -> str:
        body = {"prompt": "a red ball", "model": T2V, "seed": 7, "steps": 60, "frames": 17, **fields}
        answer = await self.http.post("/v1/videos", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def video(self, video: str) -> dict[str, Any]:
        """Also while the gateway is killed."""
        while True:
            with contextlib.suppress(httpx.HTTPError):
                return (await self.http.get(f"/v1/videos/{video}")).json()
            await asyncio.sleep(0.2)

    async def wait_step(self, video: str, step: int, attempt: int = 1) -> None:
        async def there() -> bool:
            found = await self.video(video)
            assert found["status"] not in ("failed", "cancelled"), found
            return found["attempt"] >= attempt and found["step"] >= step and found["stage"] == "denoising"

        await wait_until(there, f"step {step} of attempt {attempt}", 240)

    async def digest(self, video: str) -> str:
        async def done() -> bool:
            found = await self.video(video)
            assert found["status"] not in ("failed", "cancelled"), found
            return found["status"] == "completed"

        await wait_until(done, "the video", 300)
        content = await self.http.get(f"/v1/videos/{video}/content")
        assert content.status_code == 200
        return hashlib.sha256(content.content).hexdigest()


async def typed(service: Service, url: str) -> tuple[str, list[str]]:
    """The command of the page's "Add a worker" for a visitor who came by this URL: its one-time code and its options."""
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as http:
        shown = (await http.post("/workers/join-codes", json={"url": url})).raise_for_status().json()
    assignment, program, role, *options = shlex.split(shown["command"])
    assert (program, role, "--tunnel" in options) == ("turnout", "worker", True)
    return assignment.removeprefix("TURNOUT_JOIN_TOKEN="), options


@asynccontextmanager
async def rented(tmp_path: Path) -> AsyncIterator[tuple[Service, Box, str]]:
    """A service without a worker, a machine behind NAT, and the URL by which that one reaches the service."""
    with behind_nat() as box:
        async with running_service(tmp_path, models=MODELS, lease_s=10) as service:
            await set_aside_its_own_worker(service)
            port = int(service.url.rpartition(":")[2])
            async with delayed(box.cloud, ("127.0.0.1", port)) as door:
                yield service, box, f"http://{box.cloud}:{door}"


@asynccontextmanager
async def story(tmp_path: Path) -> AsyncIterator[tuple[Story, Box]]:
    async with (
        rented(tmp_path) as (service, box, url),
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=60) as http,
    ):
        code, options = await typed(service, url)
        worker = RentedWorker(service, tmp_path / "rented", code, *options, "--id", "rented")
        worker.box = box.name
        await worker.start()

        async def there() -> bool:
            return "rented" in {one["name"] for one in await list_workers(service)}

        try:
            await wait_until(there, "the rented machine to appear", 60)
            yield Story(service, worker, http), box
        except BaseException:
            print(worker.log.read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            await worker.stop()


def kill(processes: list[psutil.Process]) -> None:
    assert processes
    processes[-1].send_signal(signal.SIGKILL)


async def test_a_machine_behind_nat_renders_chats_and_survives_everything(tmp_path: Path) -> None:
    async with story(tmp_path) as (users, box):
        calm = await users.digest(await users.submit())
        chat = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        answer = await users.http.post("/v1/chat/completions", json=chat)
        assert answer.status_code == 200, answer.text
        still = await users.http.post(
            "/v1/videos",
            data={"prompt": "it moves to the left", "model": I2V, "seed": "3", "steps": "8", "frames": "9"},
            files={"input_reference": ("frame.png", picture(128, 128), "image/png")},
        )
        assert still.status_code == 200, still.text
        await users.digest(still.json()["id"])

        dropped = await users.submit(seed=8, steps=100)
        await users.wait_step(dropped, 2)
        assert (await users.http.post(f"/v1/videos/{dropped}/cancel")).status_code < 300
        await wait_until(lambda: bool(users.worker.events("attempt dropped")), "the gang to drop it", 20)

        video = await users.submit()
        await users.wait_step(video, 6)
        kill(users.worker.ranks())
        assert await users.digest(video) == calm, "a killed rank"

        video = await users.submit()
        await users.wait_step(video, 6)
        await users.worker.kill()
        await users.worker.start()
        assert await users.digest(video) == calm, "a killed worker"

        video = await users.submit()
        await users.wait_step(video, 6)
        kill(users.service.parts("gateway"))
        assert await users.digest(video) == calm, "a killed gateway"
        assert (await users.video(video))["attempt"] == 1

        video = await users.submit()
        await users.wait_step(video, 6)
        await box.cut(CUT_S)
        assert await users.digest(video) == calm, "a link that was cut"
        listed = (await users.http.get("/v1/videos?limit=100")).json()["data"]
        assert sorted(one["status"] for one in listed) == ["cancelled", *["completed"] * 6]


async def test_a_large_upload_does_not_stall_reports(tmp_path: Path) -> None:
    """80 s of the link's rate, and eight times the lease."""
    async with (
        rented(tmp_path) as (service, box, url),
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=60) as http,
    ):
        body = {"prompt": "a red ball", "model": "outer", "steps": 100}
        video = (await http.post("/v1/videos", json=body)).raise_for_status().json()["id"]
        gang = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", box.name, sys.executable, "-m", "tests.e2e.large_upload", url, "outer"),
            env={**os.environ, "TURNOUT_JOIN_TOKEN": await worker_key(service)},
            stdout=subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(gang.communicate(), 280)
        print(said.decode())
        told = json.loads(said)
        assert gang.returncode == 0 and told["task"] == video and told["reports"] > 20, told
        shown = (await http.get(f"/v1/videos/{video}")).json()
        assert (shown["status"], shown["attempt"], shown["failures"]) == ("queued", 1, 0), (
            "the lease was kept"
        )
