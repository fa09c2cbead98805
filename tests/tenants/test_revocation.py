"""A key that is revoked, or a worker that is evicted, loses what it has open at every gateway.

The store is changed directly here, as another gateway or the command line does it, unless a test says otherwise."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.chat.test_chat_limits import ASK, PATH, at_once
from tests.conftest import Stores, wait_until
from tests.gateways import Chat, Gateway, bearer, chatting, running
from tests.pace import patient
from tests.relay.kit import Call
from tests.tenants.test_session_routes import log_in
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from turnout.fleet.machine_rules import WorkerId
from turnout.tasks.signed_urls import UrlPurpose
from turnout.tasks.task_rules import TaskId, TenantId
from turnout.tenants.key_rules import Role, mint

STREAM = {**ASK, "stream": True}
MACHINE: dict[str, Any] = {"gpus": [], "memory_bytes": 8, "free_memory_bytes": 8}
JOIN = {"name": "box", "url": "tunnel:", "machine": MACHINE, "probe_key": "k" * 32}
BEAT = {"machine": MACHINE, "replicas": []}


@pytest.fixture
async def chat(stores: Stores, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(stores, tmp_path) as made:
        yield made


def id_of(token: str) -> str:
    return token.removeprefix("tk-").partition(".")[0]


async def streams_for_ever(call: Call) -> None:
    await call.begin_events()
    await call.chunk(b'data: {"choices": []}\n\n')
    await call.wait_hung_up()


async def never_answers(call: Call) -> None:
    await call.wait_hung_up()


async def read_stream(chat: Chat, began: asyncio.Event, headers: dict[str, str] | None = None) -> str:
    async with (
        httpx.AsyncClient(base_url=chat.base, timeout=30) as http,
        http.stream("POST", PATH, json=STREAM, headers=headers or bearer(chat.gateway.token)) as answer,
    ):
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            began.set()
        return text


async def test_a_revoked_user_key_ends_its_chat_streams_and_those_that_wait(
    chat: Chat, stores: Stores
) -> None:
    hung_up = asyncio.Event()

    async def streams(call: Call) -> None:
        await streams_for_ever(call)
        hung_up.set()

    await chat.replica(streams)
    began, board = asyncio.Event(), chat.gateway.inside.chat.switchboard
    async with chat.client() as http, asyncio.TaskGroup() as group:
        reading = group.create_task(read_stream(chat, began))
        await began.wait()
        await chat.route(concurrency=1)
        waiting = group.create_task(http.post(PATH, json=ASK))
        await wait_until(lambda: board.demand()["m"].waiting == 1, "the second request to wait")
        await stores.tenants.keys.revoke(id_of(chat.gateway.token))
    last = (await reading).strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "invalid_api_key"
    assert waiting.result().status_code == 401
    await asyncio.wait_for(hung_up.wait(), patient(10))
    await wait_until(lambda: chat.at_rest, "nothing to be held")


async def test_a_revoked_user_key_ends_its_video_events(served: Gateway) -> None:
    video = await served.submit()
    socket_url = served.base.replace("http", "ws")
    headers = bearer(served.token)
    async with (
        httpx.AsyncClient(base_url=served.base, headers=headers, timeout=30) as http,
        http.stream("GET", f"/v1/videos/{video}/events") as events,
        connect(f"{socket_url}/v1/videos/{video}/ws", additional_headers=headers) as one,
        connect(f"{socket_url}/v1/videos/ws", additional_headers=headers) as all_of_them,
    ):
        lines = events.aiter_lines()
        await anext(lines)
        await one.recv()
        await served.stores.tenants.keys.revoke(id_of(served.token))
        async with asyncio.timeout(patient(20)):
            async for _ in lines:
                pass
            for socket in (one, all_of_them):
                with pytest.raises(ConnectionClosed):
                    while True:
                        await socket.recv()
                assert socket.close_code == 4401
        assert (await http.get(f"/v1/videos/{video}/events")).status_code == 401


async def test_what_a_browser_has_open_ends_with_the_key_behind_its_session(
    chat: Chat, stores: Stores
) -> None:
    admin = await chat.gateway.key("ops", Role.ADMIN)
    await log_in(chat.gateway, admin)
    page = {"cookie": f"turnout_session={chat.gateway.http.cookies['turnout_session']}", "origin": chat.base}
    await chat.replica(streams_for_ever)
    began, socket_url = asyncio.Event(), chat.base.replace("http", "ws")
    async with (
        connect(f"{socket_url}/v1/videos/ws", additional_headers=page) as socket,
        asyncio.TaskGroup() as group,
    ):
        await socket.recv()
        reading = group.create_task(read_stream(chat, began, page))
        await began.wait()
        await stores.tenants.keys.revoke(id_of(admin))
        async with asyncio.timeout(patient(20)):
            last = (await reading).strip().splitlines()[-1]
            with pytest.raises(ConnectionClosed):
                await socket.recv()
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "invalid_api_key"
    assert socket.close_code == 4401
    await wait_until(lambda: chat.at_rest, "nothing to be held")


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_events_that_a_signed_url_opened_end_with_it(served: Gateway, end: str) -> None:
    queued = (await served.http.post("/v1/videos", json={"prompt": "a red ball"})).json()
    task = TaskId(queued["id"])
    lifetime_s = 3.0 if end == "expired" else 300.0
    url = replace(served.inside.videos.urls, ttl_s=lifetime_s).url(task, UrlPurpose.EVENTS, time.time())
    async with (
        httpx.AsyncClient(base_url=served.base, timeout=30) as http,
        http.stream("GET", url) as events,
    ):
        lines = events.aiter_lines()
        await anext(lines)
        if end == "revoked":
            await served.stores.share_links.revoke_urls(task, time.time())
        async with asyncio.timeout(patient(20)):
            async for _ in lines:
                pass
        assert (await http.get(url)).status_code == 404


@pytest.mark.parametrize("way", ["key", "share", "url"])
async def test_a_download_that_is_under_way_ends_with_the_right_to_it(served: Gateway, way: str) -> None:
    video, size = await served.submit(), 32 << 20  # more than sockets hold
    await served.gang.finish(await served.gang.claim(), b"\0" * size)
    shares = served.stores.share_links
    share = (await served.http.post(f"/v1/videos/{video}/shares", json={})).json()
    path, headers = {
        "key": (f"/v1/videos/{video}/content", bearer(served.token)),
        "share": ("/v1/shared/content", {"x-turnout-share": str(share["token"])}),
        "url": (served.inside.videos.urls.url(TaskId(video), UrlPurpose.CONTENT, time.time()), {}),
    }[way]
    async with (
        httpx.AsyncClient(base_url=served.base, timeout=30) as http,
        http.stream("GET", path, headers=headers) as answer,
    ):
        pieces = answer.aiter_raw(64 * 1024)
        got = len(await anext(pieces))
        await {
            "key": lambda: served.stores.tenants.keys.revoke(id_of(served.token)),
            "share": lambda: shares.remove(TaskId(video), share["id"]),
            "url": lambda: shares.revoke_urls(TaskId(video), time.time()),
        }[way]()
        await wait_until(lambda: not served.inside.revocations.callers.owners, "the caller to be ended")
        with pytest.raises(httpx.RemoteProtocolError):
            async for piece in pieces:
                got += len(piece)
        assert got < size


async def test_a_worker_ends_with_the_key_that_it_joined_with(served: Gateway) -> None:
    """Its secret is of no more use, its open heartbeat and its tunnel end, and it cannot come back under its id."""
    token = await served.key(role=Role.WORKER)
    other = await served.key(role=Role.WORKER)
    async with httpx.AsyncClient(base_url=served.base, timeout=60) as http:
        one = (await http.post("/workers/register", json=JOIN, headers=bearer(token))).json()
        stays = (await http.post("/workers/register", json=JOIN, headers=bearer(other))).json()
        beat, secret = f"/workers/{one['id']}/heartbeat", bearer(one["secret"])
        assert (await http.post(beat, json=BEAT, headers=secret)).status_code == 200
        tunnel = f"{served.base.replace('http', 'ws')}/workers/{one['id']}/tunnel"
        async with connect(tunnel, additional_headers=secret) as socket, asyncio.TaskGroup() as group:
            await socket.recv()
            await socket.send(b"")
            held = group.create_task(http.post(beat, json={**BEAT, "wait_s": 30}, headers=secret))
            await wait_until(
                lambda: len(served.inside.revocations.workers._open.get(one["id"], ())) == 2,
                "tunnel and heartbeat to be open",
            )
            await served.stores.tenants.keys.revoke(id_of(token))
            async with asyncio.timeout(patient(20)):
                assert (await held).json()["error"]["code"] == "worker_evicted"
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
        assert (await http.post(beat, json=BEAT, headers=secret)).status_code == 403
        again = {**JOIN, "known_as": one["id"], "secret": one["secret"]}
        back = await http.post("/workers/register", json=again, headers=bearer(other))
        assert (back.status_code, back.json()["error"]["code"]) == (403, "worker_evicted")
        stranger = await http.post(beat, json=BEAT, headers=bearer("guessed"))
        assert stranger.status_code == 401, "only the worker itself learns that it was evicted"
        beat = f"/workers/{stays['id']}/heartbeat"
        assert (await http.post(beat, json=BEAT, headers=bearer(stays["secret"]))).status_code == 200


async def test_a_worker_that_is_not_heard_from_loses_its_routes_with_its_key(
    chat: Chat, stores: Stores
) -> None:
    """Without a manager: what was sent to it and not answered goes to another, what was begun ends with an error."""
    await chat.replica(never_answers)
    async with chat.client() as http, asyncio.TaskGroup() as group:
        unanswered = group.create_task(http.post(PATH, json=ASK))
        await wait_until(lambda: bool(chat.replicas[0].requests), "the rogue worker to have the prompt")
        chat.replicas[0].handler = streams_for_ever
        began = asyncio.Event()
        begun = group.create_task(read_stream(chat, began))
        await began.wait()
        honest = await chat.replica(at_once)
        worker = (await stores.fleet.workers.enrolments([WorkerId("w-1")]))[WorkerId("w-1")]
        await stores.tenants.keys.add(
            mint("honest", "s", TenantId("default"), Role.WORKER, "", time.time())[0]
        )
        await stores.fleet.workers.enrol(replace(worker, key="honest"))
        await stores.tenants.keys.revoke("workers")
    assert unanswered.result().status_code == 200
    assert '"replica_lost"' in begun.result()
    assert len(honest.requests) == 1
    asked = len(chat.replicas[0].requests)
    async with chat.client() as http:
        for _ in range(4):
            assert (await http.post(PATH, json=ASK)).status_code == 200
    assert len(chat.replicas[0].requests) == asked, "the rogue worker gets no more prompts"
    assert (await stores.fleet.workers.enrolments()).keys() == {"w-1"}
    await wait_until(lambda: chat.at_rest, "nothing to be held")


async def test_a_worker_that_is_not_heard_from_does_not_take_work(served: Gateway) -> None:
    admin = bearer(await served.key(role=Role.ADMIN))
    async with httpx.AsyncClient(base_url=served.base, timeout=60) as http:
        key = bearer(await served.key(role=Role.WORKER))
        one = (await http.post("/workers/register", json=JOIN, headers=key)).json()
        await http.post(f"/workers/{one['id']}/heartbeat", json=BEAT, headers=bearer(one["secret"]))
        (shown,) = (await http.get("/workers", headers=admin)).json()["data"]
        assert shown["standing"] == "alive" and shown["heard_ago_s"] < 6
        link = served.stores.link
        beat = link.keys.heartbeat(WorkerId(one["id"]))
        seq = int(await link.client.hget(beat, "seq") or 0)
        await link.client.hset(beat, "seq", str(seq - 140_000_000))
        (shown,) = (await http.get("/workers", headers=admin)).json()["data"]
        assert shown["standing"] == "gone" and shown["heard_ago_s"] >= 140


async def test_gateways_judge_a_silent_worker_as_the_manager_does(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, worker_gone_s=600.0) as gateway:
        admin = bearer(await gateway.key(role=Role.ADMIN))
        key = bearer(await gateway.key(role=Role.WORKER))
        one = (await gateway.http.post("/workers/register", json=JOIN, headers=key)).json()
        await gateway.http.post(f"/workers/{one['id']}/heartbeat", json=BEAT, headers=bearer(one["secret"]))
        beat = stores.link.keys.heartbeat(WorkerId(one["id"]))
        seq = int(await stores.link.client.hget(beat, "seq") or 0)
        await stores.link.client.hset(beat, "seq", str(seq - 140_000_000))
        (shown,) = (await gateway.http.get("/workers", headers=admin)).json()["data"]
        assert shown["standing"] == "suspect"
        figures = (await gateway.http.get("/metrics", headers=admin)).text
        assert 'turnout_workers{standing="suspect"} 1' in figures


async def test_an_admin_evicts_a_worker(chat: Chat) -> None:
    await chat.replica(at_once)
    admin = bearer(await chat.gateway.key(role=Role.ADMIN))
    async with chat.client() as http:
        assert (await http.delete("/workers/w-0")).status_code == 403
        assert (await http.delete("/workers/w-9", headers=admin)).status_code == 404
        answer = await http.delete("/workers/w-0", headers=admin)
        evicted = {"id": "w-0", "key": "workers", "key_revoked": False}
        assert (answer.status_code, answer.json()) == (200, evicted)
        assert (await http.get("/workers", headers=admin)).json()["data"] == []
        assert (await http.delete("/workers/w-0", headers=admin)).status_code == 404
    assert not chat.gateway.inside.chat.routes.routed, "without waiting for the manager"
