"""Gangs that somebody else than Turnout starts: the pods of a LeaderWorkerSet and of a PyTorchJob, as processes with exactly
the variables that those give them, beside a worker that only chats."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import wait_until
from tests.held_model import Gate, held_model
from tests.pace import patient
from tests.ports import free_port
from tests.service import Service, running_service
from tests.workers import worker_key

pytestmark = pytest.mark.timeout(300)
MODEL = "held"


def settings(folder: Path) -> dict[str, Any]:
    models = {
        MODEL: held_model(folder, cfg=2, runner="external"),
        "smollm2": {"engine": "llamacpp", "weights": "builtin:smollm2", "min_replicas": 1},
    }
    return {"worker_engines": ["llamacpp"], "models": models}


def lws(index: int, port: int) -> dict[str, str]:
    """MASTER_PORT is not a LeaderWorkerSet's: on one machine the default may be taken."""
    group = {"LWS_LEADER_ADDRESS": "localhost", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(index)}
    return {**group, "MASTER_PORT": str(port), "POD_NAME": f"wan-0-{index}"}


def pytorch_job(index: int, port: int) -> dict[str, str]:
    """As Kubeflow's training operator 1.9 sets them."""
    return {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "RANK": str(index),
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(index),
        "PET_NNODES": "2",
        "PYTHONUNBUFFERED": "1",
    }


def command(service: Service, name: str) -> list[str]:
    settings = service.state_dir / "worker" / "settings.json"
    options = ("--config", str(settings), "--model", MODEL, "--join", service.url)
    return [sys.executable, "-m", "turnout", name, *options]


async def gang_token(service: Service, key: Mapping[str, str], file: Path) -> dict[str, str]:
    """What a pod's init container leaves to its ranks."""
    argv = [*command(service, "open-gang"), "--write-to", str(file)]
    opening = await asyncio.create_subprocess_exec(*argv, env={**os.environ, **key})
    assert await codes([opening]) == [0]
    return {"TURNOUT_JOIN_TOKEN_FILE": str(file)}


@asynccontextmanager
async def pods(
    service: Service, variables: Sequence[Mapping[str, str]], *options: str
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """They know the models, a gateway and what their variables have, and nothing else of the service."""
    argv = [*command(service, "rank"), *options]
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}  # of the held engine
    log = (service.state_dir.parent / "pods.log").open("ab")
    started = [
        await asyncio.create_subprocess_exec(
            *argv,
            env={**os.environ, **root, **own},
            stdout=log,
            stderr=log,
        )
        for own in variables
    ]
    try:
        yield started
    except BaseException:
        print((service.state_dir.parent / "pods.log").read_text()[-6000:], file=sys.stderr)
        raise
    finally:
        log.close()
        for pod in started:
            if pod.returncode is None:
                pod.kill()
            await pod.wait()


async def codes(started: Sequence[asyncio.subprocess.Process]) -> list[int]:
    async with asyncio.timeout(patient(150)):
        return [await pod.wait() for pod in started]


async def test_pods_render_beside_a_chat_only_worker_and_hand_a_task_over(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.hold(3)
    async with (
        running_service(tmp_path, **settings(tmp_path)) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as http,
    ):

        async def shown() -> dict[str, Any]:
            return (await http.get(f"/v1/models/{MODEL}")).json()

        async def chat_ready() -> bool:
            return (await http.get("/v1/models/smollm2")).json()["state"] == "ready"

        await wait_until(chat_ready, "the worker, which runs chat engines only", 90)
        body = {"prompt": "a ball", "model": MODEL, "seed": 7, "steps": 100}
        answer = await http.post("/generate", json=body)
        assert answer.status_code < 300, answer.text
        video = answer.json()["task_id"]
        assert (await shown())["runner"] == "external"
        assert (await shown())["status"] == "its gangs are started by others"

        async def denoising() -> bool:
            found = (await http.get(f"/v1/videos/{video}")).json()
            assert found["status"] != "failed", found
            return bool(found["stage"] == "denoising" and found["step"] > 2)

        async def ready() -> bool:
            return bool((await shown())["state"] == "ready")

        port = free_port()
        key = {"TURNOUT_JOIN_TOKEN": await worker_key(service)}
        async with pods(service, [lws(0, port) | key, lws(1, port)]) as group:
            await wait_until(denoising, "the group to render", 150)
            await wait_until(ready, "the model to be ready")
            group[1].terminate()  # the pod without the leader is evicted

            def have_left() -> bool:
                gate.let_on()
                return all(pod.returncode is not None for pod in group)

            await wait_until(have_left, "the pods to leave", 60)
            assert await codes(group) == [0, 0], "both leave in peace"
        gate.open()
        assert (await http.get(f"/v1/videos/{video}")).json()["status"] == "queued"

        port = free_port()
        members = [
            pytorch_job(0, port) | await gang_token(service, key, tmp_path / "token"),
            pytorch_job(1, port) | {"TURNOUT_JOIN_TOKEN_FILE": str(tmp_path / "is not in this pod")},
        ]
        async with pods(service, members, "--once") as job:
            assert await codes(job) == [0, 0]
        found = (await http.get(f"/v1/videos/{video}")).json()
        assert found["status"] == "completed", found
        assert "attempt resumed" in (tmp_path / "pods.log").read_text()
        async with pods(service, members, "--once", "--idle-exit", "1") as late:
            assert await codes(late[:1]) == [0], "nothing was left to render"
