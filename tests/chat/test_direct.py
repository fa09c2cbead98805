"""A real gateway and a real worker, in front of a small engine: which route requests take, and that the worker's count
stays true."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import ValidationError
from tests.conftest import Stores, wait_until
from tests.gateways import Chat, chatting
from tests.worker.conftest import MODEL, Bench

from turnout.chat.chat_admission import ChatAdmission
from turnout.chat.direct import DirectRoute, DirectSession
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import Publication
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, Want
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.fleet.worker_rules import Enrolment
from turnout.relay import Relay, RelayRequest, UpstreamCall
from turnout.worker.direct_access import DirectAccess
from turnout.worker.direct_messages import DirectEngine
from turnout.worker.engine_control import HttpEngine
from turnout.worker.proxy_admission import ProxyAdmission, worker_relay_settings
from turnout.worker.proxy_app import control_app
from turnout.worker.relay_tokens import relay_token_from_digest
from turnout.worker.replica_set import ReplicaSet

W, R1 = WorkerId("w"), ReplicaId("r1")
DIGEST = "5ecret"
CHAT = "/v1/chat/completions"


class CountingAdmission(ProxyAdmission):
    admitted = 0

    def admit(self, request: RelayRequest) -> UpstreamCall:
        self.admitted += 1
        return super().admit(request)


@dataclass
class Worker:
    replicas: ReplicaSet
    url: str
    admission: CountingAdmission
    listening: asyncio.Task[None]

    @property
    def busy(self) -> int:
        return self.replicas.reports()[0].busy

    @property
    def phase(self) -> Phase:
        return self.replicas.reports()[0].phase

    def want(self, want: Want) -> None:
        self.replicas.follow([ReplicaOrder(replica=R1, model=MODEL, gpus=(), want=want)])


@asynccontextmanager
async def serving(replicas: ReplicaSet, access: DirectAccess, port: int = 0) -> AsyncIterator[Worker]:
    admission = CountingAdmission(replicas, lambda: relay_token_from_digest(DIGEST))
    relay = Relay(admission, worker_relay_settings())
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        settings = uvicorn.Config(
            control_app(replicas, admission, str),
            http=relay.protocol,
            ws="none",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(settings)
        running = asyncio.create_task(server.serve(sockets=[listening]))
        direct = asyncio.create_task(access.listen(url))
        await wait_until(lambda: server.started, "the server to start")
        try:
            yield Worker(replicas, url, admission, direct)
        finally:
            relay.close()
            direct.cancel()
            await asyncio.gather(direct, return_exceptions=True)
            server.should_exit = True
            await asyncio.wait_for(running, 10)


@pytest.fixture
async def bench(state_dir: Path) -> AsyncIterator[Bench]:
    engine = HttpEngine()
    yield Bench(state_dir, engine)
    await engine.aclose()


@pytest.fixture
async def worker(bench: Bench) -> AsyncIterator[Worker]:
    context = replace(bench.context(), wait_acknowledged=lambda: access.wait_acknowledged())
    async with ReplicaSet(context, lambda: access.announce()) as replicas:
        access = DirectAccess(replicas)
        async with serving(replicas, access) as worker:
            worker.want(Want.READY)
            await wait_until(lambda: worker.phase is Phase.READY, "the engine to be ready")
            yield worker


@asynccontextmanager
async def gateway(stores: Stores, tmp_path: Path, worker: Worker) -> AsyncIterator[Chat]:
    async with chatting(stores, tmp_path) as chat:
        board = chat.gateway.inside.chat.switchboard
        await stores.fleet.workers.enrol(Enrolment(W, "test", worker.url, DIGEST, address="127.0.0.1"))
        told = ModelRoutes((Route(R1, W, worker.url, None),), 8)
        assert await stores.fleet.manager_state.publish("fleet", "test", Publication(routes={"m": told}))
        await wait_until(lambda: (board._routes or {}).get("m") == told, "the gateway to hear of the route")
        await wait_until(lambda: session(chat, worker) is not None, "the gateway to meet the worker")
        yield chat


def session(chat: Chat, worker: Worker) -> DirectSession | None:
    admission = chat.gateway.inside.chat.relay._context.admission
    assert isinstance(admission, ChatAdmission)
    return admission.direct._sessions.get(worker.url)


def met(chat: Chat, worker: Worker) -> DirectSession:
    found = session(chat, worker)
    assert found is not None
    return found


async def reached_directly(chat: Chat, worker: Worker) -> None:
    await wait_until(
        lambda: (s := session(chat, worker)) is not None and R1 in s.routes, "the direct route to open"
    )


async def reached_by_proxy(chat: Chat, worker: Worker) -> None:
    await wait_until(
        lambda: (s := session(chat, worker)) is None or R1 not in s.routes, "the direct route to close"
    )


def asked(**more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{}], **more}).encode()


async def ask(chat: Chat, **more: Any) -> httpx.Response:
    async with chat.client() as client:
        return await client.post(CHAT, content=asked(**more))


async def test_on_one_machine_requests_go_directly_and_are_counted(
    stores: Stores, tmp_path: Path, worker: Worker
) -> None:
    async with gateway(stores, tmp_path, worker) as chat, asyncio.TaskGroup() as group:
        await reached_directly(chat, worker)
        release = tmp_path / "go"
        in_flight = [group.create_task(ask(chat, until=str(release))) for _ in range(3)]
        await wait_until(lambda: worker.busy == 3, "the worker to count what never passed its proxy")
        release.touch()
        for answer in [await one for one in in_flight]:
            assert answer.status_code == 200
            assert answer.json()["key"] is None, "the engine sees no key of ours"
        await wait_until(lambda: worker.busy == 0, "the worker to count them out")
        assert worker.admission.admitted == 0
        assert chat.at_rest


async def test_a_stop_lets_a_direct_request_end_and_sends_others_to_the_proxy(
    stores: Stores, tmp_path: Path, worker: Worker
) -> None:
    async with gateway(stores, tmp_path, worker) as chat, asyncio.TaskGroup() as group:
        await reached_directly(chat, worker)
        release = tmp_path / "go"
        in_flight = group.create_task(ask(chat, until=str(release)))
        await wait_until(lambda: met(chat, worker).busy, "the request to be in flight")
        worker.want(Want.GONE)  # before the worker was told of the request, or after: both must hold
        await reached_by_proxy(chat, worker)
        await wait_until(lambda: worker.busy == 1, "the worker to know of the request")
        assert worker.phase is Phase.STOPPING
        release.touch()
        assert (await in_flight).status_code == 200
        await wait_until(lambda: worker.phase is Phase.GONE, "the engine to leave")
        assert worker.admission.admitted == 0


async def test_routes_may_go_while_a_request_is_in_flight_and_it_still_counts(
    stores: Stores, tmp_path: Path, worker: Worker
) -> None:
    async with gateway(stores, tmp_path, worker) as chat, asyncio.TaskGroup() as group:
        await reached_directly(chat, worker)
        release = tmp_path / "go"
        in_flight = group.create_task(ask(chat, until=str(release)))
        await wait_until(lambda: worker.busy == 1, "the request to be counted")
        gone = Publication(routes={"m": ModelRoutes()})
        assert await chat.gateway.stores.fleet.manager_state.publish("fleet", "test", gone)
        await wait_until(
            lambda: not chat.gateway.inside.chat.routes.worker_urls(),
            "the gateway to have no route to the worker",
        )
        worker.want(Want.GONE)
        await reached_by_proxy(chat, worker)
        assert worker.busy == 1
        release.touch()
        assert (await in_flight).status_code == 200
        await wait_until(lambda: worker.phase is Phase.GONE, "the engine to leave")


async def test_without_a_session_there_is_no_direct_route(
    stores: Stores, tmp_path: Path, worker: Worker
) -> None:
    async with gateway(stores, tmp_path, worker) as chat:
        await reached_directly(chat, worker)
        worker.listening.cancel()
        await reached_by_proxy(chat, worker)
        assert (await ask(chat)).status_code == 200
        assert worker.admission.admitted == 1
        access = DirectAccess(worker.replicas)
        access.announce()
        again = asyncio.create_task(access.listen(worker.url))
        await reached_directly(chat, worker)
        assert (await ask(chat)).status_code == 200
        assert worker.admission.admitted == 1
        again.cancel()


async def test_a_request_whose_direct_route_fails_is_retried_through_the_proxy(
    stores: Stores, tmp_path: Path, worker: Worker
) -> None:
    async with gateway(stores, tmp_path, worker) as chat:
        await reached_directly(chat, worker)
        session = met(chat, worker)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            engine = session.routes[R1].engine.model_copy(update={"port": nobody.getsockname()[1]})
            session.routes[R1] = DirectRoute(engine, session)
            assert (await ask(chat)).status_code == 200
        assert worker.admission.admitted == 1
        assert not session.busy
        assert not chat.gateway.inside.chat.switchboard._failed, "the replica is not to blame"


def engine(key: str) -> DirectEngine:
    return DirectEngine(replica=R1, port=20_000, paths=(), key=key)


@pytest.mark.parametrize("key", ["", "a b", "x\r\nx-injected: 1", "\u00e9", "x" * 201])
def test_a_key_is_no_more_than_a_word(key: str) -> None:
    with pytest.raises(ValidationError):
        engine(key)


def test_keys_are_in_no_log_line() -> None:
    assert "s3cret" not in repr(engine("s3cret"))
