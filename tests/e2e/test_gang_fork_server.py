"""Gangs that are forks of a process with their imports: the same bytes, and nobody is left behind or lost with it."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from tests.conftest import wait_until
from tests.held_model import Gate, held_model
from tests.pace import patient
from tests.service import Service, lives

from turnout.worker.gang_fork_server import ENVIRON, IMPORTS

pytestmark = pytest.mark.timeout(300)
SMALL = {"prompt": "a red ball", "size": "64x64", "frames": 9, "steps": 8, "seed": 7}
_LOOK = """
import importlib, pathlib, sys, threading
for name in sys.argv[1:]:
    importlib.import_module(name)
import torch
names = [task.joinpath("comm").read_text() for task in pathlib.Path("/proc/self/task").iterdir()]
ours = [name for name in names if not name.startswith("cuda")]  # the driver has one of its own, and forks can do without
print(len(ours), threading.active_count(), torch.cuda.is_initialized(), torch.cuda._is_in_bad_fork())
"""


def test_its_imports_start_no_thread_and_leave_cuda_alone() -> None:
    """A lock that another thread holds would be held in each fork for ever; CUDA does not work in a fork of its user."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    said = subprocess.run(
        [sys.executable, "-c", _LOOK, *IMPORTS],
        env={**environ, **ENVIRON},
        capture_output=True,
        check=True,
        timeout=patient(240),
    )
    assert said.stdout.decode().split() == ["1", "1", "False", "False"]


def fork_server(service: Service) -> psutil.Process:
    """The one that has no parent among those like it: its forks have its words."""
    found = [p for p in psutil.Process(service.pid).children(recursive=True) if _is_kept(p)]
    (first,) = [p for p in found if p.parent() not in found]
    return first


def _is_kept(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "turnout.worker.engine_fork_server" in words and "keep" in words


async def rendered(client: httpx.AsyncClient, video: str) -> bytes:
    async def ended() -> bool:
        state = (await client.get(f"/v1/videos/{video}")).raise_for_status().json()
        assert state["status"] not in ("failed", "cancelled"), state
        return state["status"] == "completed"

    await wait_until(ended, "the video", 120)
    return (await client.get(f"/v1/videos/{video}/content")).raise_for_status().content


async def test_a_forked_gang_renders_the_same_bytes_and_outlives_its_fork_server(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    wan = {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"}
    settings = {"checkpoint_steps": 2, "models": {"wan": wan, "held": held_model(tmp_path)}}
    service = Service(tmp_path / "state", settings, environ={"TURNOUT_GANG_FORK_SERVER": "true"})
    await service.start()
    try:
        async with service.client() as client:
            await _scene(service, client, gate)
        family = psutil.Process(service.pid).children(recursive=True)
    finally:
        await service.kill()
    await wait_until(lambda: not any(map(lives, family)), "all to end")


async def _scene(service: Service, client: httpx.AsyncClient, gate: Gate) -> None:
    async def submit(model: str) -> str:
        return (await client.post("/v1/videos", json={**SMALL, "model": model})).json()["id"]

    first = await rendered(client, await submit("wan"))
    server = fork_server(service)
    assert server.num_threads() == 1
    forked = [p for p in server.children(recursive=True) if _is_kept(p)]
    assert len(forked) >= 4, "guard, supervisor, its fork server and a rank are forks of it"

    def rank() -> psutil.Process:
        """The youngest, as `pkill` of the acceptance page finds it."""
        kept = [p for p in psutil.Process(service.pid).children(recursive=True) if _is_kept(p)]
        return max((p for p in kept if p.name() == "turnout-rank-0"), key=lambda p: p.create_time())

    async def under_way() -> str:
        gate.hold(4)
        video = await submit("held")

        async def steps() -> bool:
            return (await client.get(f"/v1/videos/{video}")).json()["step"] > 3

        await wait_until(steps, "some steps", 60)
        return video

    async def attempts(video: str) -> int:
        gate.open()
        await rendered(client, video)
        return (await client.get(f"/v1/videos/{video}")).json()["attempt"]

    long, held = await under_way(), rank()
    server.kill()
    assert lives(held)
    await wait_until(lambda: _is_another(service, server), "another fork server", 60)
    assert await attempts(long) == 1, "the gang went on"
    long = await under_way()
    held.kill()  # and the gang is formed again, by its own fork server
    assert await attempts(long) == 2, "the rank was killed"
    assert await rendered(client, await submit("wan")) == first


def _is_another(service: Service, before: psutil.Process) -> bool:
    try:
        return fork_server(service).pid != before.pid
    except (ValueError, psutil.Error):
        return False
