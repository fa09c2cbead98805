"""The bytes of an attempt: in pieces, never visible half, and only its own; through the gateway or straight to S3."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import Stores, make_task
from tests.gangs import Door, open_door

from turnout.errors import NotFound, Unavailable
from turnout.gang.gang_api import AttemptApi, GangApi
from turnout.store.object_store import open_blobs
from turnout.tasks.gang_messages import (
    PIECE_BYTES,
    CheckpointTold,
    ClaimedTask,
    Upload,
    UploadDone,
    UploadPlan,
)
from turnout.tasks.task_rules import Limits

LIMITS = Limits(100, 100, 1000)
LARGE = os.urandom(2 * PIECE_BYTES + 12345)


@asynccontextmanager
async def claimed(stores: Stores) -> AsyncIterator[tuple[Door, GangApi, ClaimedTask, AttemptApi]]:
    async with open_door(stores) as door:
        await stores.tasks.submit(make_task(), LIMITS)
        api = door.api("g1")
        task = await api.claim(loading=False, wait_s=0)
        assert task is not None
        yield door, api, task, api.attempt(task)


async def keys(stores: Stores, task: ClaimedTask) -> list[str]:
    return sorted([blob.key.rpartition("/")[2] async for blob in stores.blobs.list(f"tasks/{task.id}/")])


@pytest.fixture(params=["directory", "s3"])
async def anywhere(s3: str, stores: Stores, request: pytest.FixtureRequest) -> Stores:
    if request.param == "directory":
        return stores
    return replace(stores, blobs=open_blobs(f"s3://vid/{os.urandom(4).hex()}", s3))


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["small", "large"])
async def test_what_was_sent_is_there_whole_and_is_read_again(anywhere: Stores, data: bytes) -> None:
    async with claimed(anywhere) as (_, _, task, attempt):
        await attempt.put("checkpoint-4.safetensors", data)
        assert await keys(anywhere, task) == ["checkpoint-4.safetensors"]
        await attempt.report(CheckpointTold(step=4))
        assert await attempt.get("checkpoint") == data
        with pytest.raises(NotFound):
            await attempt.get("image")


async def test_an_upload_that_broke_goes_on_with_what_was_not_sent(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with claimed(stores) as (_, api, task, attempt):
        sent: list[int] = []
        send = api.send_piece

        async def breaking(name: str, token: str, number: int, *rest: Any) -> None:
            sent.append(number)
            if sent.count(1) == 1 and number == 1:
                raise Unavailable("the link is cut")
            await send(name, token, number, *rest)

        monkeypatch.setattr(api, "send_piece", breaking)
        with pytest.raises(Unavailable):
            await attempt.put("video.mp4", LARGE)
        assert "video.mp4" not in await keys(stores, task), "never visible half"
        await attempt.put("video.mp4", LARGE)
        assert sent == [0, 1, 1, 2]
        assert await keys(stores, task) == ["video.mp4"]


async def test_an_object_with_another_digest_never_appears(stores: Stores) -> None:
    async with claimed(stores) as (_, api, task, attempt):
        plan: UploadPlan = await api.call_attempt(
            "/objects/video.mp4", task.token, Upload(bytes=len(LARGE)), UploadPlan
        )
        for number in range(3):
            piece = LARGE[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
            await api.send_piece("video.mp4", task.token, number, 3, piece, plan)
        wrong = UploadDone(bytes=len(LARGE), sha256=hashlib.sha256(b"other").hexdigest())
        with pytest.raises(Unavailable, match="digest"):
            await api.call_attempt("/objects/video.mp4/complete", task.token, wrong)
        assert await keys(stores, task) == []
        await attempt.put("video.mp4", LARGE)
        assert await keys(stores, task) == ["video.mp4"]


async def test_a_store_that_a_gang_cannot_reach_is_written_through_the_gateway(
    s3: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = replace(stores, blobs=open_blobs(f"s3://vid/{os.urandom(4).hex()}", s3))
    async with claimed(stores) as (_, api, task, attempt):
        send = api.send

        async def behind_nat(method: str, path: str, *rest: Any) -> Any:
            if s3 in path:
                path = path.replace(s3, "http://127.0.0.1:9")  # nobody is there
            return await send(method, path, *rest)

        monkeypatch.setattr(api, "send", behind_nat)
        await attempt.put("video.mp4", LARGE)
        assert await keys(stores, task) == ["video.mp4"]


async def test_a_replaced_checkpoint_goes_and_what_nobody_was_told_of_goes_at_the_end(stores: Stores) -> None:
    async with claimed(stores) as (_, _, task, attempt):
        for step in (2, 4):
            await attempt.put(f"checkpoint-{step}.safetensors", b"x")
            await attempt.report(CheckpointTold(step=step))
        await attempt.put("preview-4.webp", b"x")
        await attempt.over()
        assert await keys(stores, task) == ["checkpoint-4.safetensors"]


@pytest.mark.parametrize(
    "name",
    ["other.mp4", "..%2f..%2fsecret", "checkpoint-x.safetensors", "video.mp4.piece-0001", "preview-1.png"],
)
async def test_only_the_names_of_what_a_gang_makes_are_taken(stores: Stores, name: str) -> None:
    async with claimed(stores) as (_, _, task, attempt):
        with pytest.raises(NotFound):
            await attempt.put(name, b"x")
        assert await keys(stores, task) == []


async def test_a_piece_over_the_limit_is_refused(stores: Stores) -> None:
    async with claimed(stores) as (_, api, task, _):
        plan = UploadPlan(piece_bytes=PIECE_BYTES, content_type="video/mp4")
        with pytest.raises(Unavailable, match="413"):
            await api.send_piece("video.mp4", task.token, 0, 1, bytes(PIECE_BYTES + 1), plan)
