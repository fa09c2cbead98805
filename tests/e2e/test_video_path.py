"""The whole service as its users meet it: `turnout up`, the unmodified `openai` client, real gangs."""

import asyncio
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import av
import httpx
import openai
import pytest
from PIL import Image
from tests.conftest import make_task, wait_until
from tests.doc_blocks import ROOT, run_blocks
from tests.service import Service, running_service

from turnout.run.config import load
from turnout.run.run_up import write_resolved
from turnout.run.state_dir import write_private
from turnout.run.stores import open_stores
from turnout.store.valkey import start_valkey

pytestmark = pytest.mark.timeout(300)
SMALL = {"size": "64x64", "extra_body": {"frames": 9, "steps": 8, "seed": 7}}


def api(service: Service) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key=service.api_key, max_retries=0)


async def test_the_openai_client_creates_polls_lists_downloads_remixes_and_deletes(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        await asyncio.to_thread(use_openai, api(service))
        ran = await asyncio.to_thread(run_blocks, ROOT / "README.md", tmp_path, service.url, service.api_key)
        assert len(ran) == 2 and (tmp_path / "square.mp4").exists()
        cost = ROOT / "docs" / "cost.md"
        assert await asyncio.to_thread(run_blocks, cost, tmp_path, service.url, service.api_key)


def use_openai(client: openai.OpenAI) -> None:
    video = client.videos.create(
        prompt="a red ball",
        model="wan-tiny-t2v",
        size=cast(Any, "128x128"),  # the client types Sora's sizes only
        extra_body={"steps": 30, "seed": 7},
    )
    assert video.status == "queued"
    seen: list[int] = []
    while video.status in ("queued", "in_progress"):
        video = client.videos.retrieve(video.id)
        seen.append(video.progress)
    assert video.status == "completed", video.error
    assert seen == sorted(seen)
    assert len(set(seen)) >= 5, f"progress rises step by step: {sorted(set(seen))}"

    mp4 = client.videos.download_content(video.id).read()
    with av.open(io.BytesIO(mp4), "r") as container:
        frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    assert len(frames) == 17
    assert frames[0].shape == (128, 128, 3)
    for variant in ("thumbnail", "spritesheet"):
        data = client.videos.download_content(video.id, variant=variant).read()
        assert Image.open(io.BytesIO(data)).width > 0

    assert [v.id for v in client.videos.list()] == [video.id]
    remix = client.videos.remix(video.id, prompt="a blue ball")
    assert remix.remixed_from_video_id == video.id
    assert client.videos.poll(remix.id, poll_interval_ms=200).status == "completed"
    assert client.videos.delete(video.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.videos.retrieve(video.id)

    picture = io.BytesIO()
    Image.new("RGB", (200, 100), "orange").save(picture, "PNG")
    from_image = client.videos.create_and_poll(
        prompt="a ball", model="wan-tiny-ti2v", input_reference=("first.png", picture.getvalue()), **SMALL
    )
    assert from_image.status == "completed", from_image.error


async def denoising(client: httpx.AsyncClient, video: str) -> bool:
    found = (await client.get(f"/v1/videos/{video}")).json()
    return found["stage"] == "denoising" and found["step"] > 0


async def submit(client: httpx.AsyncClient, **body: Any) -> str:
    answer = await client.post(
        "/v1/videos", json={"prompt": "a ball", "model": "wan-tiny-t2v", "seed": 7, **body}
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def status_is(client: httpx.AsyncClient, video: str, status: str) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        found = (await client.get(f"/v1/videos/{video}")).json()
        assert found["status"] != "failed", found
        return bool(found["status"] == status)

    return check


async def test_cancel_stops_all_ranks_within_a_step_and_frees_the_gang(tmp_path: Path) -> None:
    async with (
        running_service(tmp_path) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client,
    ):
        long = await submit(client, steps=100, frames=33)
        await wait_until(lambda: denoising(client, long), "the long task to run", 90)
        ranks = {p.pid for p in service.ranks()}
        assert len(ranks) == 2
        answer = await client.post(f"/v1/videos/{long}/cancel")
        assert answer.json()["status"] == "cancelled"
        step = answer.json()["step"]
        following = await submit(client, frames=9, size="64x64", steps=4)
        await wait_until(status_is(client, following, "completed"), "the next task", 60)
        assert {p.pid for p in service.ranks()} == ranks, "the gang went on with the next task"
        after = (await client.get(f"/v1/videos/{long}")).json()
        assert (after["status"], after["step"]) == ("cancelled", step)
        log = "\n".join(p.read_text() for p in (service.state_dir / "logs").glob("*.0.log"))
        dropped = [json.loads(line) for line in log.splitlines() if '"attempt dropped"' in line]
        assert [d["task"] for d in dropped] == [long]
        assert dropped[0]["step"] <= step + 1


async def test_a_killed_up_goes_on_where_it_was_at_the_next_up(tmp_path: Path) -> None:
    service = Service(tmp_path / "state", {"checkpoint_steps": 3})
    await service.start()
    async with httpx.AsyncClient(headers=service.headers, timeout=20) as client:
        client.base_url = httpx.URL(service.url)
        running = await submit(client, steps=30, frames=33)
        waiting = await submit(client, size="64x64", frames=9, steps=4)
        await wait_until(lambda: denoising(client, running), "the first task to run", 90)

        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "turnout", "up", "--config", str(service.config)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = await second.communicate()
        assert second.returncode == 2
        assert re.search(rb"already running on .* \(pid \d+\)", said), said

        await service.kill()
        await service.start()
        client.base_url = httpx.URL(service.url)
        await wait_until(status_is(client, running, "completed"), "the killed task to complete", 120)
        await wait_until(status_is(client, waiting, "completed"), "the waiting task to complete", 120)
        assert (await client.get(f"/v1/videos/{running}")).json()["attempt"] == 2
    assert await service.stop() == 0


async def test_ctrl_c_drains_with_a_checkpoint_and_blames_nobody(tmp_path: Path) -> None:
    service = Service(tmp_path / "state", {"checkpoint_steps": 1000, "checkpoint_s": 1000.0})
    await service.start()
    async with httpx.AsyncClient(headers=service.headers, timeout=20) as client:
        client.base_url = httpx.URL(service.url)
        video = await submit(client, steps=30, frames=33)
        await wait_until(lambda: denoising(client, video), "the task to run", 90)
        assert await service.stop() == 0
        await service.start()
        client.base_url = httpx.URL(service.url)
        found = (await client.get(f"/v1/videos/{video}")).json()
        assert (found["status"] in ("queued", "in_progress"), found["failures"]) == (True, 0)
        await wait_until(status_is(client, video, "completed"), "the drained task to complete", 120)
        log = "\n".join(p.read_text() for p in (service.state_dir / "logs").glob("*.0.log"))
        resumed = [json.loads(line) for line in log.splitlines() if '"attempt resumed"' in line]
        assert resumed
        assert resumed[0]["step"] > 0
    assert await service.stop() == 0


async def test_a_gang_is_stopped_when_idle_and_woken_again(tmp_path: Path) -> None:
    models = {"tiny": {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v", "cfg": 2, "idle_s": 1.0}}
    async with (
        running_service(tmp_path, models=models) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client,
    ):
        small = {"model": "tiny", "frames": 9, "size": "64x64", "steps": 4}
        for _ in range(2):
            video = await submit(client, **small)
            await wait_until(status_is(client, video, "completed"), "a video from a cold start", 90)
            await wait_until(lambda: not service.parts("gang"), "the idle gang to leave", 30)
            assert not service.ranks()


async def test_ranks_run_under_torchruns_variables(tmp_path: Path) -> None:
    state = tmp_path / "state"
    redis = await start_valkey(state / "redis", "pw", tmp_path / "redis.log")
    write_private(state / "redis" / "password", "pw")
    config = load({"state_dir": state}, {}).config
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with open_stores(config) as stores:
        task = make_task(steps=4)
        await stores.tasks.submit(task, config.tasks.limits)
        argv = [
            "-m",
            "turnout",
            "rank",
            "--config",
            str(write_resolved(config)),
            "--model",
            "wan-tiny-t2v",
            "--once",
        ]
        ranks = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, *argv),
                env={
                    **os.environ,
                    "RANK": str(n),
                    "LOCAL_RANK": str(n),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
            )
            for n in range(2)
        ]
        try:
            async with asyncio.timeout(120):
                assert [await rank.wait() for rank in ranks] == [0, 0]
        finally:
            for rank in ranks:
                if rank.returncode is None:
                    rank.kill()
        assert (await stores.tasks.get(task.id)).state == "completed"
    await redis.stop(5)


async def test_a_model_that_cannot_load_fails_its_task_with_the_reason(tmp_path: Path) -> None:
    models = {"gone": {"weights": str(tmp_path / "nowhere"), "family": "wan-tiny-t2v"}}
    async with (
        running_service(tmp_path, models=models) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client,
    ):
        video = await submit(client, model="gone", frames=9, size="64x64", steps=4)

        async def failed() -> bool:
            return (await client.get(f"/v1/videos/{video}")).json()["status"] == "failed"

        await wait_until(failed, "the task to fail", 120)
        error = (await client.get(f"/v1/videos/{video}")).json()["error"]
        assert error["code"] == "attempts_exhausted"
        assert "holds no model: there is no model_index.json" in error["message"]


async def test_a_stopped_rank_is_noticed_and_the_task_goes_on(tmp_path: Path) -> None:
    async with (
        running_service(tmp_path, stall_s=4.0, checkpoint_steps=3) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client,
    ):
        video = await submit(client, steps=30, frames=33)
        await wait_until(lambda: denoising(client, video), "the task to run", 90)
        began = time.monotonic()
        os.kill(service.ranks()[1].pid, signal.SIGSTOP)
        await wait_until(status_is(client, video, "completed"), "the task to complete", 120)
        assert time.monotonic() - began > 3.5, "it was not noticed by chance"
        found = (await client.get(f"/v1/videos/{video}")).json()
        assert (found["attempt"], found["failures"]) == (2, 1)


async def test_videos_in_s3_are_downloaded_from_there(tmp_path: Path, s3: str) -> None:
    async with running_service(tmp_path, blobs="s3://vid/turnout", blobs_endpoint=s3) as service:
        client = api(service)
        video = await asyncio.to_thread(
            client.videos.create_and_poll, prompt="a ball", model="wan-tiny-t2v", **SMALL
        )
        assert video.status == "completed", video.error
        async with httpx.AsyncClient(headers=service.headers) as plain:
            answer = await plain.get(f"{service.url}/v1/videos/{video.id}/content")
        assert answer.status_code == 302
        assert answer.headers["location"].startswith(s3)
        mp4 = await asyncio.to_thread(lambda: client.videos.download_content(video.id).read())
        with av.open(io.BytesIO(mp4), "r") as container:
            assert sum(1 for _ in container.decode(video=0)) == 9
    assert not (service.state_dir / "objects").exists()
