"""Live events: server-sent events and sockets replay what was missed, once and in order."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from tests.conftest import make_task, wait_until
from tests.gateways import Gateway, bearer, serving
from tests.pace import patient
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from turnout.tasks import live_events as live_module
from turnout.tasks import waiting_notes
from turnout.tasks.event_json import EventJson, event_json, order_of
from turnout.tasks.live_events import CutOff, LiveEvents, Watcher
from turnout.tasks.task_rules import (
    Cancelled,
    Failed,
    Interrupted,
    Recorded,
    Stage,
    Task,
    TaskFailure,
    TaskId,
    TenantId,
)
from turnout.tenants.turn_rules import turn_of


@pytest.fixture(autouse=True)
def no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why a task waits is told to whoever watches it for a second (test_waiting_notes): here the machine may be slow."""
    monkeypatch.setattr(waiting_notes, "LOOK_S", 3600.0)


STORY = ["queued", "in_progress", "progress", "preview", "progress", "completed"]


async def play(gateway: Gateway, *, model: str = "wan-tiny-t2v") -> Task:
    """A whole life of the next task, as STORY."""
    gang = gateway.gang
    task = await gang.claim(model)
    await gang.progress(task, Stage.DENOISING, 1)
    await gang.preview(task, 1, b"webp")
    await gang.progress(task, Stage.DENOISING, 2)
    return await gang.finish(task)


async def sse(gateway: Gateway, video: str, **headers: str) -> AsyncIterator[dict[str, Any]]:
    """Events of one connection; each must agree with its own id and type lines."""
    async with (
        httpx.AsyncClient(base_url=gateway.base, headers=bearer(gateway.token), timeout=20) as http,
        http.stream("GET", f"/v1/videos/{video}/events", headers=headers) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines: dict[str, str] = {}
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if line:
                lines[name] = value
            elif "data" in lines:
                event = json.loads(lines["data"])
                assert (event["id"], event["type"]) == (lines["id"], lines["event"])
                yield event
                lines = {}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [e["type"].removeprefix("video.") for e in events]


async def test_a_finished_story_is_replayed_and_ends(served: Gateway) -> None:
    video = await served.submit()
    await play(served)
    events = [e async for e in sse(served, video)]
    assert kinds(events) == STORY
    assert {e["video"] for e in events} == {video}
    assert events[2]["step"] == 1 and events[2]["steps"] == 12 and events[2]["stage"] == "denoising"
    assert events[3]["preview_url"] == f"/v1/videos/{video}/content?variant=preview"
    assert [e["progress"] for e in events if "progress" in e] == [1, 12, 19, 100]
    rest = [e async for e in sse(served, video, **{"last-event-id": events[2]["id"]})]
    assert rest == events[3:]


async def test_a_client_with_the_last_event_is_told_not_to_come_back(served: Gateway) -> None:
    video = await served.submit()
    await play(served)
    events = [e async for e in sse(served, video)]
    headers = {**bearer(served.token), "last-event-id": events[-1]["id"]}
    async with httpx.AsyncClient(base_url=served.base, timeout=20) as http:
        answer = await http.get(f"/v1/videos/{video}/events", headers=headers)
    assert answer.status_code == 204


async def test_a_live_story_arrives_while_it_happens(served: Gateway) -> None:
    video = await served.submit()
    events = sse(served, video)
    assert (await anext(events))["type"] == "video.queued"
    task = await served.gang.claim()
    assert (await anext(events))["type"] == "video.in_progress"
    for step in (1, 2, 3):
        await served.gang.progress(task, Stage.DENOISING, step)
        assert (await anext(events))["step"] == step
    await served.gang.finish(task)
    assert kinds([e async for e in events]) == ["completed"]


async def test_reconnecting_at_every_event_has_no_gap_and_no_repetition(served: Gateway) -> None:
    video = await served.submit()
    task = await served.gang.claim()
    steps = 40

    async def render() -> None:
        for step in range(1, steps + 1):
            await served.gang.progress(task, Stage.DENOISING, step, steps)
        await served.gang.finish(task)

    got: list[dict[str, Any]] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(render())
        while not got or got[-1]["type"] != "video.completed":
            last = {"last-event-id": got[-1]["id"]} if got else {}
            stream = sse(served, video, **last)
            for _ in range(7):
                try:
                    got.append(await anext(stream))
                except StopAsyncIteration:
                    break
            await stream.aclose()  # type: ignore[attr-defined]
    whole = [e async for e in sse(served, video)]
    assert [e["id"] for e in got] == [e["id"] for e in whole]
    assert [e["step"] for e in got if e["type"] == "video.progress"] == list(range(1, steps + 1))


async def test_a_lost_tail_start_leaves_no_gap(gateway: Gateway) -> None:
    """Events that the tail never brought still come, in order, before the first one that it brings."""
    task = make_task()
    await gateway.stores.tasks.submit(task, gateway.inside.videos.settings.limits)
    live = LiveEvents(
        gateway.stores.tasks,
        gateway.stores.events,
        gateway.inside.videos.live._notes,
        gateway.inside.videos.live._url_of,
    )  # its tail does not run
    stream = live.follow(task, "0")
    assert [n.text.split('"type":"')[1].split('"')[0] for n in await anext(stream)] == ["video.queued"]
    claimed = await gateway.gang.claim()
    await gateway.gang.progress(claimed, Stage.DENOISING, 1)
    waiting = asyncio.ensure_future(anext(stream))
    await wait_until(lambda: bool(live._by_task), "the watcher")
    await gateway.gang.progress(claimed, Stage.DENOISING, 2)
    newest = (await gateway.stores.events.history(task.id))[-1]
    await live._publish(newest)
    assert [json.loads(n.text)["type"] for n in await waiting] == [
        "video.in_progress",
        "video.progress",
        "video.progress",
    ]
    await stream.aclose()
    assert not live._by_task


async def test_what_a_connection_takes_at_once_is_told_once_and_in_order(gateway: Gateway) -> None:
    """The fan-out writes to whoever waits for the next event. What a connection refuses, and the end, comes as before."""
    live = gateway.inside.videos.live
    video = await gateway.submit()
    told: list[str] = []
    refuses = False

    def write_now(event: EventJson) -> bool:
        if not refuses:
            told.append(event.text)
        return not refuses

    while live.cursor is None:  # the tail may have begun after the last event
        await gateway.submit()
        await asyncio.sleep(0.02)
    stream = live.follow(await gateway.stores.tasks.get(TaskId(video)), "0", write_now)
    told += [event.text for event in await anext(stream)]
    waiting = asyncio.ensure_future(anext(stream))
    task = await gateway.gang.claim()
    await gateway.gang.progress(task, Stage.DENOISING, 1)
    await gateway.gang.progress(task, Stage.DENOISING, 2)
    await wait_until(lambda: len(told) == 4, "three events")
    [watcher] = live._by_task[TaskId(video)]
    for recorded in await gateway.stores.events.history(TaskId(video)):
        watcher.offer(event_json(recorded, None))  # all were told before
    assert not waiting.done()
    refuses = True
    await gateway.gang.progress(task, Stage.DENOISING, 3)
    told += [event.text for event in await waiting]
    refuses = False
    await gateway.gang.progress(task, Stage.DENOISING, 4)  # nobody waits for it: it must not overtake
    await gateway.gang.finish(task)
    async for batch in stream:
        told += [event.text for event in batch]
    story = [json.loads(text) for text in told]
    assert kinds(story) == ["queued", "in_progress", *["progress"] * 4, "completed"]
    assert [e["step"] for e in story if "step" in e] == [1, 2, 3, 4]


async def test_who_begins_to_watch_while_an_event_is_told_hears_it(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, tenant = gateway.inside.videos.live, TenantId("acme")
    await gateway.submit()
    task = await gateway.gang.claim()
    before = await gateway.stores.events.newest()
    await wait_until(lambda: live.cursor == before, "the tail")
    asked, answered, real = asyncio.Event(), asyncio.Event(), live._task_now

    async def slow(recorded: Recorded) -> Task | None:
        asked.set()
        await answered.wait()
        return await real(recorded)

    monkeypatch.setattr(live, "_task_now", slow)
    await gateway.gang.finish(task)
    await asyncio.wait_for(asked.wait(), patient(30))
    stream = live.follow_tenant(tenant, turn_of(tenant, None), before)
    await anext(stream)  # the note that it has begun
    [watcher] = live._by_tenant[tenant]
    heard = asyncio.ensure_future(anext(stream))
    await wait_until(lambda: watcher._passes is not None, "the watcher to have looked back")
    answered.set()
    told = await asyncio.wait_for(heard, patient(30))
    assert [json.loads(event.text)["type"] for event in told] == ["video.completed"]
    await stream.aclose()


async def test_a_server_without_immediate_writes_tells_the_same(gateway: Gateway) -> None:
    async with serving(gateway.app) as base:
        gateway.base = base
        video = await gateway.submit()
        async with connect(
            ws_url(gateway, f"/v1/videos/{video}/ws"), additional_headers=bearer(gateway.token)
        ) as socket:
            stream = sse(gateway, video)
            events = [await anext(stream)]
            await play(gateway)
            assert kinds(events + [e async for e in stream]) == STORY
            assert kinds(await heard(socket)) == STORY


async def test_many_watchers_of_both_kinds_hear_every_event_once(served: Gateway) -> None:
    video = await served.submit()
    url, steps = ws_url(served, f"/v1/videos/{video}/ws"), 200
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(connect(url, additional_headers=bearer(served.token)))
            for _ in range(5)
        ]
        streams = [sse(served, video) for _ in range(5)]
        firsts = [await anext(stream) for stream in streams]
        task = await served.gang.claim()
        for step in range(1, steps + 1):
            await served.gang.progress(task, Stage.DENOISING, step, steps)
        await served.gang.finish(task)
        stories = [await heard(socket) for socket in sockets]
        stories += [
            [first, *[e async for e in stream]] for first, stream in zip(firsts, streams, strict=True)
        ]
    for story in stories:
        assert kinds(story) == ["queued", "in_progress", *["progress"] * steps, "completed"]
        assert [e["step"] for e in story if "step" in e] == list(range(1, steps + 1))


async def test_quiet_streams_get_heartbeats(served: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "HEARTBEAT_S", 0.05)
    video = await served.submit()
    async with (
        httpx.AsyncClient(base_url=served.base, headers=bearer(served.token), timeout=20) as http,
        http.stream("GET", f"/v1/videos/{video}/events") as answer,
    ):
        beats = 0
        async for line in answer.aiter_lines():
            beats += line == ": still here"
            if beats == 3:
                break


@pytest.mark.parametrize(
    ("headers", "query"), [({"last-event-id": "x"}, ""), ({}, "?after=1-2-3"), ({}, "?after=-5")]
)
async def test_an_odd_event_id_is_refused(gateway: Gateway, headers: dict[str, str], query: str) -> None:
    video = await gateway.submit()
    answer = await gateway.http.get(f"/v1/videos/{video}/events{query}", headers=headers)
    param = "Last-Event-ID" if headers else "after"
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_an_empty_event_id_is_the_beginning(served: Gateway) -> None:
    video = await served.submit()
    headers = {**bearer(served.token), "last-event-id": ""}
    async with (
        httpx.AsyncClient(base_url=served.base, headers=headers, timeout=20) as http,
        http.stream("GET", f"/v1/videos/{video}/events") as answer,
    ):
        first = await anext(line async for line in answer.aiter_lines() if line.startswith("data:"))
    assert '"video.queued"' in first


async def test_a_requeue_and_the_last_death_tell_apart(served: Gateway) -> None:
    video = await served.submit()
    stream = sse(served, video)
    got = [await anext(stream)]
    for _ in range(3):
        task = await served.gang.claim()
        await served.gang.say(task, Interrupted(time.time(), task.attempt, "rank 1 died"))
    got += [e async for e in stream]
    expected = ["queued", *["in_progress", "requeued"] * 2, "in_progress", "failed"]
    assert kinds(got) == expected
    assert got[2]["reason"] == "rank 1 died"
    assert got[-1]["error"]["code"] == "attempts_exhausted"
    assert kinds([e async for e in sse(served, video)]) == expected


async def test_failed_and_cancelled_end_a_story(served: Gateway) -> None:
    first, second = await served.submit(), await served.submit()
    task = await served.gang.claim()
    await served.gang.say(
        task, Failed(time.time(), task.attempt, TaskFailure("unrenderable", "too odd", {"reason": "x"}))
    )
    await served.stores.tasks.apply(TaskId(second), Cancelled(time.time()))
    failed = [e async for e in sse(served, first)]
    assert failed[-1]["error"] == {"code": "unrenderable", "message": "too odd", "params": {"reason": "x"}}
    assert kinds([e async for e in sse(served, second)]) == ["queued", "cancelled"]


def ws_url(gateway: Gateway, path: str) -> str:
    return gateway.base.replace("http", "ws") + path


async def heard(socket: ClientConnection) -> list[dict[str, Any]]:
    """Everything until the server closes."""
    return [json.loads(m) async for m in socket]


async def test_a_socket_tells_one_story_and_closes(served: Gateway) -> None:
    video = await served.submit()
    url = ws_url(served, f"/v1/videos/{video}/ws")
    async with connect(url, additional_headers=bearer(served.token)) as socket:
        await play(served)
        events = await heard(socket)
        assert socket.close_code == 1000
    assert kinds(events) == STORY
    async with connect(f"{url}?after={events[3]['id']}", additional_headers=bearer(served.token)) as socket:
        assert [e["id"] for e in await heard(socket)] == [e["id"] for e in events[4:]]


async def test_a_browser_gives_its_key_as_a_subprotocol(served: Gateway) -> None:
    video = await served.submit()
    await play(served)
    protocols = [Subprotocol("turnout"), Subprotocol(f"turnout.key.{served.token}")]
    async with connect(ws_url(served, f"/v1/videos/{video}/ws"), subprotocols=protocols) as socket:
        assert socket.subprotocol == "turnout"
        assert kinds(await heard(socket)) == STORY


async def test_a_key_may_come_as_the_first_message(served: Gateway) -> None:
    video = await served.submit()
    await play(served)
    async with connect(ws_url(served, f"/v1/videos/{video}/ws")) as socket:
        await socket.send(json.dumps({"key": served.token}))
        assert kinds(await heard(socket)) == STORY


@pytest.mark.parametrize("message", ['{"key": "tk-a.b"}', "hello", "[]", '{"token": 1}', "[" * 100_000])
async def test_a_wrong_first_message_closes_the_socket(served: Gateway, message: str) -> None:
    async with connect(ws_url(served, "/v1/videos/ws")) as socket:
        await socket.send(message)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 4401


async def test_sockets_are_refused_with_http_before_the_handshake(served: Gateway) -> None:
    video = await served.submit()
    stranger = bearer(await served.key("other"))
    for path, headers, status in (
        (f"/v1/videos/{video}/ws", bearer("tk-a.b"), 401),
        (f"/v1/videos/{video}/ws", stranger, 404),
        (f"/v1/videos/{video}/ws?after=x", bearer(served.token), 400),
        ("/v1/videos/ws?after=x", bearer(served.token), 400),
    ):
        with pytest.raises(InvalidStatus) as caught:
            await connect(ws_url(served, path), additional_headers=headers)
        assert caught.value.response.status_code == status
        assert json.loads(caught.value.response.body or b"")["error"]["message"]


async def test_a_tenants_socket_tells_of_all_its_tasks_and_of_no_other(served: Gateway) -> None:
    url = ws_url(served, "/v1/videos/ws")
    async with (
        connect(url, additional_headers=bearer(served.token)) as mine,
        connect(url, additional_headers=bearer(await served.key("other"))) as theirs,
    ):
        for socket in (mine, theirs):
            assert json.loads(await socket.recv())["object"] == "video.watching"
        one, two = await served.submit(), await served.submit()
        await play(served)
        await play(served)
        events = [json.loads(await mine.recv()) for _ in range(2 * len(STORY))]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(theirs.recv(), 0.1)
    for video in (one, two):
        assert kinds([e for e in events if e["video"] == video]) == STORY
    cursors = [order_of(e["cursor"]) for e in events]
    assert cursors == sorted(set(cursors))
    async with connect(
        f"{url}?after={events[4]['cursor']}", additional_headers=bearer(served.token)
    ) as again:
        assert json.loads(await again.recv()) == {
            "object": "video.watching",
            "cursor": events[4]["cursor"],
        }
        missed = [json.loads(await again.recv()) for _ in range(len(events) - 5)]
        assert [e["cursor"] for e in missed] == [e["cursor"] for e in events[5:]]
        three = await served.submit()
        assert json.loads(await again.recv())["video"] == three
        await served.http.delete(f"/v1/videos/{three}")
        last = [json.loads(await again.recv()) for _ in range(2)]
        assert [(e["type"], e["video"]) for e in last] == [
            ("video.cancelled", three),
            ("video.deleted", three),
        ]


async def test_looking_back_holds_no_connection_to_redis(served: Gateway) -> None:
    """Whoever named a cursor held one for two seconds: one caller with many sockets had all 64 of the gateway."""

    async def blocked() -> int:
        return int((await served.stores.link.client.info("clients"))["blocked_clients"])

    await play_one(served)
    url = ws_url(served, "/v1/videos/ws?after=9999999999999-0")
    async with AsyncExitStack() as stack:
        for _ in range(30):
            socket = await stack.enter_async_context(connect(url, additional_headers=bearer(served.token)))
            assert json.loads(await socket.recv())["object"] == "video.watching"
        assert await blocked() < 15, "the gateway's own reads are a few"


async def play_one(served: Gateway) -> None:
    """So that the tail has begun."""
    async with connect(ws_url(served, "/v1/videos/ws"), additional_headers=bearer(served.token)) as socket:
        await socket.recv()
        await served.submit()
        await socket.recv()


async def test_a_watcher_that_falls_behind_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "_MAX_BEHIND", 3)
    watcher = Watcher()
    recorded = Recorded("1-0", "1-0", TaskId("video_1"), TenantId("t"), Cancelled(1.0))
    for _ in range(4):
        watcher.offer(event_json(recorded, None))
    with pytest.raises(CutOff):
        await watcher.take()
    assert not watcher._pending


async def test_stopping_ends_open_streams_and_sockets(served: Gateway) -> None:
    video = await served.submit()
    stream = sse(served, video)
    await anext(stream)
    async with connect(ws_url(served, "/v1/videos/ws"), additional_headers=bearer(served.token)) as socket:
        await wait_until(lambda: served.inside.videos.live._count == 2, "both watchers")
        served.inside.videos.live.stop()
        assert [e async for e in stream] == []
        with pytest.raises(ConnectionClosed):
            while True:
                await socket.recv()
        assert socket.close_code == 1013


async def test_clients_that_leave_are_forgotten(served: Gateway) -> None:
    video = await served.submit()
    stream = sse(served, video)
    await anext(stream)
    async with connect(ws_url(served, "/v1/videos/ws"), additional_headers=bearer(served.token)):
        await wait_until(lambda: served.inside.videos.live._count == 2, "both watchers")
    await stream.aclose()  # type: ignore[attr-defined]
    await wait_until(lambda: served.inside.videos.live._count == 0, "both gone")
