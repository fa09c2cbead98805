"""A worker that joins must be at the address that it says it has."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from tests.gateways import Gateway

from turnout.chat.proxy_routes import ProxyRoutes
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import Route
from turnout.tenants.key_rules import Role
from turnout.worker.relay_tokens import probe_answer

KEY = "p" * 64
MACHINE = {"gpus": [], "memory_bytes": 8, "free_memory_bytes": 8}


@asynccontextmanager
async def answering(
    status: int, body: bytes | None = None, **headers: str
) -> AsyncIterator[tuple[str, list[str]]]:
    """A server's URL, and what it was asked for. Without a body it proves that it knows the key."""
    asked: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        assert not [value for name, value in scope["headers"] if name in (b"authorization", b"cookie")]
        said = probe_answer(KEY, scope["path"].removeprefix("/probe/")).encode() if body is None else body
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": named})
        await send({"type": "http.response.body", "body": said})

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
            finally:
                server.should_exit = True


async def join(gateway: Gateway, url: str) -> httpx.Response:
    body = {"name": "box", "url": url, "machine": MACHINE, "probe_key": KEY}
    headers = {"Authorization": f"Bearer {await gateway.key(role=Role.WORKER)}"}
    return await gateway.http.post("/workers/register", json=body, headers=headers)


async def test_a_worker_that_proves_itself_joins(gateway: Gateway) -> None:
    async with answering(200) as (url, asked):
        assert (await join(gateway, url)).status_code == 200
        assert (await join(gateway, f"{url}/")).status_code == 200
    assert len(set(asked)) == 2, "every probe asks anew"


async def test_a_worker_is_called_where_it_has_proven_to_be(gateway: Gateway) -> None:
    """Whatever its name leads to later."""
    async with answering(200) as (url, _):
        joined = (await join(gateway, url.replace("127.0.0.1", "localhost"))).json()
    worker = WorkerId(joined["id"])
    enrolled = await gateway.stores.fleet.workers.enrolled(worker)
    assert enrolled is not None and enrolled.address == "127.0.0.1"
    feed = gateway.inside.chat.routes
    feed._enrol({worker: enrolled})
    target = ProxyRoutes(feed.proxy_of).find(Route(ReplicaId("r"), worker, enrolled.url, None)).target
    assert (target.host, target.address) == ("localhost", "127.0.0.1")


@pytest.mark.parametrize(
    ("status", "body", "headers", "reason"),
    [
        (200, b"", {}, "something else than this worker"),
        (200, b"0" * 64, {}, "something else than this worker"),
        (404, b"no such path", {}, "answered 404"),
        (302, b"", {"location": "http://127.0.0.1:1/"}, "redirects"),
        (200, b"x" * 10_000, {}, "over 256 bytes"),
    ],
)
async def test_whoever_else_answers_there_is_refused(
    gateway: Gateway, status: int, body: bytes, headers: dict[str, str], reason: str
) -> None:
    async with answering(status, body, **headers) as (url, asked):
        answer = await join(gateway, url)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "url")
    assert reason in error["message"] and url in error["message"] and "--tunnel" in error["message"]
    assert len(asked) == 1, "nothing is followed"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "169.254.169.254", "224.0.0.1", "255.255.255.255"])
async def test_addresses_that_no_worker_has_are_never_asked(gateway: Gateway, host: str) -> None:
    answer = await join(gateway, f"http://{host}:8100")
    assert answer.status_code == 400
    assert "no worker can have" in answer.json()["error"]["message"]


async def test_a_worker_that_cannot_be_reached_hears_what_was_tried(gateway: Gateway) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        error = (await join(gateway, url)).json()["error"]
    assert error["code"] == "worker_unreachable"
    assert f"tried {url}/probe/" in error["message"] and "--tunnel" in error["message"]


async def test_only_a_worker_key_makes_us_call(gateway: Gateway) -> None:
    async with answering(200) as (url, asked):
        body = {"name": "box", "url": url, "machine": MACHINE, "probe_key": KEY}
        assert (await gateway.http.post("/workers/register", json=body)).status_code == 403
    assert not asked
