"""Pictures in OpenAI's dialect, by the unmodified `openai` client, on a gang that tests drive."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types import Image as OpenAIImage
from openai.types import ImagesResponse
from tests.conftest import Stores, wait_until
from tests.gateways import Gateway, bearer, running
from tests.people.test_people import admin_of, newcomer, refused

from turnout.tasks import object_keys
from turnout.tasks.task_rules import Failed, Finished, Result, State, Task, TaskFailure

PICTURE = b"\x89PNG of a fox"


@pytest.fixture
async def client(served: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{served.base}/v1", api_key=served.token, max_retries=0, timeout=20
    ) as made:
        yield made


async def claim(gateway: Gateway) -> Task:
    async def queued() -> bool:
        page = (await gateway.http.get("/v1/videos")).json()["data"]
        return any(video["status"] == State.QUEUED for video in page)

    await wait_until(queued, "the task")
    return await gateway.gang.claim()


async def draw(gateway: Gateway, picture: bytes = PICTURE) -> Task:
    """As a gang does."""
    task = await claim(gateway)
    root = object_keys.of_attempt(task)
    result = Result(f"{root}v.mp4", f"{root}t.webp", f"{root}s.jpg", 1, f"{root}picture.png")
    await gateway.stores.blobs.put(str(result.picture), picture, "image/png")
    return await gateway.gang.say(task, Finished(time.time(), task.attempt, result))


def _only(answer: ImagesResponse) -> OpenAIImage:
    assert answer.data is not None and len(answer.data) == 1
    return answer.data[0]


async def test_the_client_gets_a_picture_as_bytes_and_as_a_url(
    served: Gateway, client: openai.AsyncOpenAI
) -> None:
    asking = asyncio.create_task(client.images.generate(prompt="a fox", model="wan-tiny-t2v", size="96x96"))  # type: ignore[call-overload]
    task = await draw(served)
    first = _only(await asking)
    assert (task.spec.frames, task.spec.width) == (1, 96)
    assert base64.b64decode(first.b64_json or "") == PICTURE
    async with httpx.AsyncClient() as stranger:
        shown = await stranger.get(first.url or "")
    assert (shown.content, shown.headers["content-type"]) == (PICTURE, "image/png")
    only = asyncio.create_task(
        client.images.generate(prompt="a fox", response_format="b64_json", size="auto")
    )
    await draw(served)
    assert _only(await only).url is None


async def test_many_pictures_are_one_batch_with_a_seed_each(
    served: Gateway, client: openai.AsyncOpenAI
) -> None:
    asking = asyncio.create_task(
        client.images.generate(prompt="a fox", n=3, extra_body={"seed": 5, "steps": 4})
    )
    made = [await draw(served, bytes([i])) for i in range(3)]
    answer = await asking
    assert [base64.b64decode(one.b64_json or "") for one in answer.data or []] == [b"\0", b"\1", b"\2"]
    assert [task.spec.seed for task in made] == [5, 6, 7] and len({task.batch for task in made}) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": "x", "n": 9}, "n"),
        ({"prompt": "x", "n": True}, "n"),
        ({"prompt": "x", "size": "1x1"}, "size"),
        ({"prompt": "x", "output_format": "webp"}, "output_format"),
        ({"prompt": "x", "stream": True}, "stream"),
        ({"prompt": "x", "seed": -1}, "seed"),
    ],
)
async def test_what_cannot_be_drawn_is_refused(gateway: Gateway, body: dict[str, Any], param: str) -> None:
    answer = await gateway.http.post("/v1/images/generations", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_picture_that_fails_says_why(served: Gateway, client: openai.AsyncOpenAI) -> None:
    asking = asyncio.create_task(client.images.generate(prompt="a fox"))
    task = await claim(served)
    await served.gang.say(task, Failed(time.time(), task.attempt, TaskFailure("unrenderable", "too dark")))
    with pytest.raises(openai.BadRequestError, match="too dark"):
        await asking


async def test_whoever_hangs_up_cancels_unless_she_can_come_back(
    served: Gateway, client: openai.AsyncOpenAI
) -> None:
    for key in (None, "again"):
        headers = {"Idempotency-Key": key} if key else {}
        asking = asyncio.create_task(client.images.generate(prompt="a fox", extra_headers=headers))
        await wait_until(lambda: _waiting(served), "the task")
        asking.cancel()
        if key is None:
            await wait_until(lambda: _waiting(served, 0), "the task to be cancelled")
    again = client.images.generate(prompt="a fox", extra_headers={"Idempotency-Key": "again"})
    asking = asyncio.create_task(again)
    await draw(served)
    assert base64.b64decode(_only(await asking).b64_json or "") == PICTURE
    states = [video["status"] for video in (await served.http.get("/v1/videos")).json()["data"]]
    assert states == ["completed", "cancelled"]


async def _waiting(gateway: Gateway, count: int = 1) -> bool:
    page = (await gateway.http.get("/v1/videos")).json()["data"]
    return sum(video["status"] == State.QUEUED for video in page) == count


async def test_only_a_single_frame_is_a_picture(gateway: Gateway) -> None:
    video = await gateway.submit()
    await gateway.gang.finish(await gateway.gang.claim())
    answer = await gateway.http.get(f"/v1/videos/{video}/content", params={"variant": "picture"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_content")


async def test_pictures_that_are_refused_end_none_of_an_earlier_request_and_cost_nothing(
    stores: Stores, tmp_path: Path
) -> None:
    """A request that came again under its key and was refused cancelled what the first one waited for; and pictures of which one was
    refused used up the day."""
    path, limits = "/v1/images/generations", {"limit_waiting": 1, "limit_running": 1}
    async with running(stores, tmp_path, **limits) as gateway:
        key = {"Idempotency-Key": "again"}
        first = asyncio.create_task(gateway.http.post(path, json={"prompt": "a fox", "n": 2}, headers=key))
        await wait_until(lambda: _waiting(gateway, 2), "both pictures")
        again = await gateway.http.post(path, json={"prompt": "a fox", "n": 3}, headers=key)
        assert refused(again) == (429, "too_many_tasks")
        assert await _waiting(gateway, 2), "they are the first request's"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    async with running(stores, tmp_path) as gateway:
        ada, _ = await newcomer(gateway, await admin_of(gateway), limits={"videos": 3})
        assert refused(await ada.http.post(path, json={"prompt": "a fox", "n": 4})) == (429, "daily_limit")
        assert (await ada.http.get("/v1/account")).json()["videos_today"] == {"asked": 0, "most": 3}


async def test_whoever_loses_the_right_to_pictures_waits_no_longer(gateway: Gateway) -> None:
    admin = await admin_of(gateway)
    made = (await gateway.http.post("/v1/keys", json={"tenant": "acme"}, headers=admin)).json()
    asking = asyncio.create_task(
        gateway.http.post("/v1/images/generations", json={"prompt": "x"}, headers=bearer(made["token"]))
    )
    await wait_until(lambda: _waiting(gateway), "the task")
    await wait_until(lambda: len(gateway.inside.revocations.callers.owners) > 0, "the request waits")
    await gateway.http.delete(f"/v1/keys/{made['id']}", headers=admin)
    assert refused(await asking) == (401, "invalid_api_key")
