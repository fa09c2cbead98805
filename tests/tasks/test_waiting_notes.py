"""Why a queued video waits: said by its object and, as notes, by live streams; gone once it is rendered."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.conftest import wait_until
from tests.gateways import Gateway, bearer
from tests.pace import patient
from websockets.asyncio.client import connect

from turnout.fleet.publication import Publication
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause
from turnout.tasks import wait_reasons, waiting_notes
from turnout.tasks.task_rules import Stage

NO_WORKER = ModelStatus(ModelState.WAITING, StatusCause.NO_WORKER, for_s=3.0)
LOADING = ModelStatus(ModelState.STARTING, worker="gpu1", for_s=12.7)
READY = ModelStatus(ModelState.READY, replicas=1)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_notes, "LOOK_S", 0.02)
    monkeypatch.setattr(wait_reasons, "_KEEP_S", 0.0)


@pytest.fixture
async def waking(soon: None, served: Gateway) -> Gateway:
    return served


async def publish(gateway: Gateway, status: ModelStatus, model: str = "wan-tiny-t2v") -> None:
    """As the manager does."""
    assert await gateway.stores.mutex.hold("fleet", "m", 60)
    assert await gateway.stores.fleet.manager_state.publish(
        "fleet", "m", Publication(statuses={model: status})
    )


async def sse(gateway: Gateway, video: str) -> AsyncIterator[tuple[str | None, dict[str, Any]]]:
    """(the id line, the data) of each event."""
    async with (
        httpx.AsyncClient(base_url=gateway.base, headers=bearer(gateway.token), timeout=20) as http,
        http.stream("GET", f"/v1/videos/{video}/events") as answer,
    ):
        event_id: str | None = None
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                event_id = value
            elif name == "data":
                yield event_id, json.loads(value)
                event_id = None


async def test_a_queued_video_says_why_it_waits(gateway: Gateway, soon: None) -> None:
    video = await gateway.submit()

    async def shown() -> Any:
        return (await gateway.http.get(f"/v1/videos/{video}")).json()["waiting_for"]

    assert await shown() is None, "nobody has said how the model stands"
    await publish(gateway, NO_WORKER)
    words = "waking: no worker has joined"
    assert await shown() == {"state": "waiting", "cause": "no_worker", "words": words, "for_s": 3}
    assert (await gateway.http.get("/v1/videos")).json()["data"][0]["waiting_for"]["words"] == words
    await publish(gateway, LOADING)
    words = "waking: loading on gpu1"
    assert await shown() == {"state": "starting", "cause": None, "words": words, "for_s": 12}
    task = await gateway.gang.claim()
    assert (await shown())["words"] == words, "it was taken, and its model is not loaded yet"
    await gateway.gang.progress(task, Stage.DENOISING, 1)
    assert await shown() is None


async def test_users_are_not_told_where_weights_lie(gateway: Gateway, soon: None) -> None:
    video = await gateway.submit(model="t2v-big", size="832x480")
    await publish(gateway, ModelStatus(ModelState.FAILED, failures=1, reason="no /weights/t2v"), "t2v-big")
    shown = (await gateway.http.get(f"/v1/videos/{video}")).json()
    assert shown["waiting_for"]["words"] == "failed once: no t2v-big; it will be tried again"


async def test_a_live_stream_tells_why_until_the_video_is_rendered(waking: Gateway) -> None:
    await publish(waking, NO_WORKER)
    video = await waking.submit()
    events = sse(waking, video)
    assert (await anext(events))[1]["type"] == "video.queued"
    event_id, note = await anext(events)
    assert event_id is None, "nobody can resume from a note"
    assert note == {
        "object": "video.event",
        "type": "video.waiting",
        "video": video,
        "waiting_for": {
            "state": "waiting",
            "cause": "no_worker",
            "words": "waking: no worker has joined",
            "for_s": 3,
        },
        "queue_position": 0,
        "eta_s": None,
    }
    await publish(waking, ModelStatus(ModelState.WAITING, StatusCause.NO_WORKER, for_s=4.0))  # no other words
    await publish(waking, LOADING)
    assert (await anext(events))[1]["waiting_for"]["words"] == "waking: loading on gpu1"
    task = await waking.gang.claim()
    assert (await anext(events))[1]["type"] == "video.in_progress"
    await waking.gang.progress(task, Stage.DENOISING, 1)
    assert (await anext(events))[1]["type"] == "video.progress"
    await publish(waking, NO_WORKER)
    await asyncio.sleep(0.2)  # ten looks
    await waking.gang.finish(task)
    assert [event["type"] async for _, event in events] == ["video.completed"]
    replayed = [event["type"] async for _, event in sse(waking, video)]
    assert replayed == ["video.queued", "video.in_progress", "video.progress", "video.completed"]
    await wait_until(lambda: not waking.inside.videos.live._notes._waits, "nothing to be remembered")


async def test_sockets_of_one_task_and_of_the_tenant_tell_why(waking: Gateway) -> None:
    await publish(waking, NO_WORKER)
    video = await waking.submit()
    base = waking.base.replace("http", "ws", 1)
    headers = bearer(waking.token)
    async with (
        connect(f"{base}/v1/videos/ws", additional_headers=headers) as tenant,
        connect(f"{base}/v1/videos/{video}/ws", additional_headers=headers) as one,
        connect(f"{base}/v1/videos/ws", additional_headers=bearer(await waking.key("other"))) as stranger,
    ):

        async def told(socket: Any, words: str | None) -> None:
            async with asyncio.timeout(patient(20)):
                while True:
                    event = json.loads(await socket.recv())
                    if event.get("type") != "video.waiting":
                        continue
                    assert event["video"] == video
                    if (event["waiting_for"] or {}).get("words") == words:
                        return

        for socket in (tenant, one):
            await told(socket, "waking: no worker has joined")
        await publish(waking, LOADING)
        for socket in (tenant, one):
            await told(socket, "waking: loading on gpu1")
        await publish(waking, READY)
        for socket in (tenant, one):
            await told(socket, None)  # from now on it waits for its turn
        assert json.loads(await stranger.recv())["object"] == "video.watching"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stranger.recv(), 0.1)


async def test_watchers_are_told_when_the_line_before_them_moves(waking: Gateway) -> None:
    await publish(waking, READY)
    first, second = await waking.submit(), await waking.submit()
    async with connect(
        waking.base.replace("http", "ws") + "/v1/videos/ws", additional_headers=bearer(waking.token)
    ) as socket:
        said = [json.loads(await socket.recv()) for _ in range(2)]
        assert said[0]["object"] == "video.watching"
        assert (said[1]["video"], said[1]["queue_position"], said[1]["waiting_for"]) == (second, 1, None)
        await waking.http.post(f"/v1/videos/{first}/cancel")
        while (told := json.loads(await socket.recv()))["type"] != "video.waiting":
            pass
        assert (told["video"], told["queue_position"]) == (second, 0)
        await socket.send("ping")
        assert json.loads(await socket.recv()) == {"object": "video.alive"}


async def test_a_new_task_is_told_with_all_that_was_asked_for(waking: Gateway) -> None:
    async with connect(
        waking.base.replace("http", "ws") + "/v1/videos/ws", additional_headers=bearer(waking.token)
    ) as socket:
        assert json.loads(await socket.recv())["object"] == "video.watching"
        made = (
            await waking.http.post("/v1/videos", json={"prompt": "a fox", "seed": 7, "batch": "b"})
        ).json()
        told = json.loads(await socket.recv())
    assert (told["type"], told["video"]) == ("video.queued", made["id"])
    same = ("id", "object", "model", "prompt", "seed", "size", "frames", "batch", "status", "created_at")
    assert {name: told["snapshot"][name] for name in same} == {name: made[name] for name in same}
    task = await waking.gang.claim()
    await waking.gang.finish(task)
    replayed = [event async for _, event in sse(waking, made["id"])]
    assert replayed[0]["snapshot"] == told["snapshot"], "it is the same whenever it is told"
