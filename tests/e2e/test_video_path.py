"""The whole service as its users meet it: `turnout up`, the unmodified `openai` client, real gangs."""

import asyncio
import io
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import av
import httpx
import openai
import pytest
from PIL import Image
from tests.conftest import wait_until
from tests.doc_blocks import ROOT, run_blocks
from tests.held_model import Gate, held_model
from tests.service import Service

pytestmark = pytest.mark.timeout(300)
SMALL = {"size": "64x64", "extra_body": {"frames": 9, "steps": 8, "seed": 7}}


def api(service: Service, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key=key, max_retries=0)


async def test_the_openai_client_creates_polls_lists_downloads_remixes_and_deletes(
    service: Service, tmp_path: Path
) -> None:
    key = service.key_of(role="admin")
    await asyncio.to_thread(use_openai, api(service, key))
    ran = await asyncio.to_thread(run_blocks, ROOT / "README.md", tmp_path, service.url, key)
    assert len(ran) == 2 and (tmp_path / "square.mp4").exists()
    for page in ("cost.md", "acceptance.md"):
        assert await asyncio.to_thread(run_blocks, ROOT / "docs" / page, tmp_path, service.url, key)


def use_openai(client: openai.OpenAI) -> None:
    video = client.videos.create(
        prompt="a red ball",
        model="wan-tiny-t2v",
        size=cast(Any, "96x64"),  # the client types Sora's sizes only
        extra_body={"steps": 40, "seed": 7},  # so many that a poll now and then sees several of them
    )
    assert video.status == "queued"
    seen: list[int] = []
    while video.status in ("queued", "in_progress"):
        video = client.videos.retrieve(video.id)
        seen.append(video.progress)
        time.sleep(0.02)
    assert video.status == "completed", video.error
    assert seen == sorted(seen)
    assert len(set(seen)) >= 5, f"progress rises step by step: {sorted(set(seen))}"

    mp4 = client.videos.download_content(video.id).read()
    with av.open(io.BytesIO(mp4), "r") as container:
        frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    assert len(frames) == 17
    assert frames[0].shape == (64, 96, 3)
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


async def denoising(client: httpx.AsyncClient, video: str, attempt: int = 1) -> bool:
    found = (await client.get(f"/v1/videos/{video}")).json()
    return (found["stage"], found["attempt"]) == ("denoising", attempt) and found["step"] > 0


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


async def test_cancel_stops_all_ranks_within_a_step_and_frees_the_gang(service: Service) -> None:
    async with service.client() as client:
        long = await submit(client, steps=100, frames=17)
        await wait_until(lambda: denoising(client, long), "the long task to run", 90)
        ranks = {p.pid for p in service.ranks("wan-tiny-t2v")}
        assert len(ranks) == 2
        answer = await client.post(f"/v1/videos/{long}/cancel")
        assert answer.json()["status"] == "cancelled"
        step = answer.json()["step"]
        following = await submit(client, frames=9, size="64x64", steps=4)
        await wait_until(status_is(client, following, "completed"), "the next task", 60)
        assert {p.pid for p in service.ranks("wan-tiny-t2v")} == ranks, "the gang went on with the next task"
        after = (await client.get(f"/v1/videos/{long}")).json()
        assert (after["status"], after["step"]) == ("cancelled", step)
        dropped = await logged(service, "attempt dropped", long)
        # Each step waits 0.2 s for its report to be heard: where that takes longer, one more has begun.
        assert dropped["step"] <= step + 2


async def logged(service: Service, event: str, task: str) -> dict[str, Any]:
    """What a first rank has said of the task, once."""
    found: list[dict[str, Any]] = []

    def told() -> bool:
        log = "\n".join(p.read_text() for p in (service.state_dir / "logs").glob("*.0.log"))
        found[:] = [json.loads(line) for line in log.splitlines() if f'"{event}"' in line and task in line]
        return bool(found)

    await wait_until(told, f"{event!r} in the log")
    (line,) = found
    return line


async def test_a_model_that_cannot_load_fails_its_task_with_the_reason(
    service: Service, tmp_path: Path
) -> None:
    async with service.client() as client:
        await register(client, "gone", str(tmp_path / "nowhere"))
        video = await submit(client, model="gone", frames=9, size="64x64", steps=4)

        async def failed() -> bool:
            return (await client.get(f"/v1/videos/{video}")).json()["status"] == "failed"

        await wait_until(failed, "the task to fail", 120)
        error = (await client.get(f"/v1/videos/{video}")).json()["error"]
        assert error["code"] == "attempts_exhausted"
        assert "holds no model: there is no model_index.json" in error["message"]
        assert (await client.delete("/v1/models/gone")).status_code == 200


async def register(client: httpx.AsyncClient, alias: str, weights: str, **fields: Any) -> None:
    body = {"alias": alias, "engine": "wan", "model_name": weights, "family": "wan-tiny-t2v", **fields}
    answer = await client.post("/v1/models/register", json=body)
    assert answer.status_code == 200, answer.text


async def test_a_stopped_rank_a_killed_gang_a_drain_and_a_kill_of_all_only_delay_a_task(
    tmp_path: Path,
) -> None:
    """Checkpoints are made by a drain alone. A gang that is killed leaves nothing that the next one does not remove."""
    gate, models = Gate(tmp_path), {"held": held_model(tmp_path, cfg=2)}
    settings = {"stall_s": 4.0, "checkpoint_steps": 1000, "checkpoint_s": 1000.0, "max_attempts": 5}
    service = Service(tmp_path / "state", {"models": models, **settings})
    gate.hold(2)

    def gang_folders() -> list[Path]:
        return [path for path in (service.state_dir / "gangs").iterdir() if path.is_dir()]

    await service.start()
    try:
        async with service.client() as client:
            video = await submit(client, model="held", steps=100)
            await wait_until(lambda: denoising(client, video), "the task to run", 90)
            began = time.monotonic()
            os.kill(service.ranks()[1].pid, signal.SIGSTOP)
            await wait_until(lambda: denoising(client, video, attempt=2), "the next attempt", 120)
            assert time.monotonic() - began > 3.5, "it was not noticed by chance"
            before = gang_folders()
            service.parts("gang")[0].kill()
            await wait_until(lambda: denoising(client, video, attempt=3), "the attempt after that", 120)
            assert len(before) == len(gang_folders()) == 1 and before != gang_folders()

        stopping = asyncio.create_task(service.stop())

        def has_ended() -> bool:
            gate.let_on()
            return stopping.done()

        await wait_until(has_ended, "the service to be drained", 60)
        assert await stopping == 0
        gate.let_on()
        await service.start()
        async with service.client() as client:
            waiting = await submit(client, model="held")
            await wait_until(lambda: denoising(client, video, attempt=4), "the drained task to run", 120)
            failures = (await client.get(f"/v1/videos/{video}")).json()["failures"]
            assert failures == 2, "the stopped rank and the killed gang"
            assert (await logged(service, "attempt resumed", video))["step"] >= 2

        await service.kill()
        gate.open()
        await service.start()
        async with service.client() as client:
            await wait_until(status_is(client, video, "completed"), "the killed task to complete", 120)
            await wait_until(status_is(client, waiting, "completed"), "the waiting task to complete", 120)
            assert (await client.get(f"/v1/videos/{video}")).json()["attempt"] == 5
    finally:
        gate.open()
        assert await service.stop() == 0
