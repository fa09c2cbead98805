"""Who is admitted to which replica, and the way to an engine through the relay that the product uses."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
import uvicorn
from tests.conftest import wait_until
from tests.worker.conftest import MODEL, Bench

from turnout.errors import NotFound, TurnoutError, Unauthorized, Unavailable
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, Want
from turnout.relay import Relay, RelayOutcome, RelayRequest
from turnout.worker.proxy_admission import ProxyAdmission, worker_relay_settings
from turnout.worker.proxy_app import control_app
from turnout.worker.relay_tokens import REPLICA_HEADER
from turnout.worker.replica_set import ReplicaSet

HEADERS = {"authorization": "Bearer t0ken", "x-turnout-replica": "r1"}
CHAT = "/v1/chat/completions"
SHOWN = "Bearer t0ken"


@asynccontextmanager
async def worker_port(replicas: ReplicaSet) -> AsyncIterator[httpx.AsyncClient]:
    admission = ProxyAdmission(replicas, lambda: "t0ken")
    relay = Relay(admission, worker_relay_settings())
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    app = control_app(replicas, admission, str)
    server = uvicorn.Server(uvicorn.Config(app, http=relay.protocol, log_config=None))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            yield client
    finally:
        relay.close()
        server.should_exit = True
        await asyncio.wait_for(serving, 10)


async def test_requests_reach_the_engine_without_the_gateway_s_token(bench: Bench) -> None:
    async with ReplicaSet(bench.context(), lambda: None) as replicas, worker_port(replicas) as client:
        order = ReplicaOrder(replica=ReplicaId("r1"), model=MODEL, gpus=(), want=Want.READY)
        replicas.follow([order])
        await wait_until(lambda: replicas.reports()[0].phase is Phase.READY, "the replica to be ready")

        answer = await client.post(CHAT, content=b"hello", headers=HEADERS)
        assert (answer.status_code, answer.json()) == (200, {"asked": "hello", "key": None})
        large = b"x" * 100_000
        assert (await client.post(CHAT, content=large, headers=HEADERS)).json()["asked"] == large.decode()
        answers = await asyncio.gather(*(client.post(CHAT, content=b"x", headers=HEADERS) for _ in range(20)))
        assert {one.status_code for one in answers} == {200}
        assert replicas.reports()[0].busy == 0

        assert (await client.post(CHAT, content=b"x")).status_code == 401
        assert (await client.post(CHAT, headers={**HEADERS, "x-turnout-replica": "r2"})).status_code == 503
        assert (await client.post("/sleep", headers=HEADERS)).status_code == 404
        assert (await client.get("/health")).status_code == 200
        assert replicas.reports()[0].busy == 0

        replicas.follow([replace(order, want=Want.GONE)])
        assert (await client.post(CHAT, content=b"x", headers=HEADERS)).status_code == 503
        assert replicas.reports()[0].busy == 0


def request(path: str, replica: str | None = "r1", authorization: str | None = SHOWN) -> RelayRequest:
    headers = [] if replica is None else [(REPLICA_HEADER, replica.encode())]
    shown = None if authorization is None else authorization.encode("latin-1")
    return RelayRequest(path.encode(), shown, headers, b"", b"req-1")


async def test_only_the_token_and_known_paths_are_admitted(bench: Bench) -> None:
    async with ReplicaSet(bench.context(), lambda: None) as replicas:
        admission = ProxyAdmission(replicas, lambda: "t0ken")
        order = ReplicaOrder(replica=ReplicaId("r1"), model=MODEL, gpus=(), want=Want.READY)
        replicas.follow([order])
        await wait_until(lambda: replicas.reports()[0].phase is Phase.READY, "the replica to be ready")

        refusals: list[tuple[RelayRequest, type[TurnoutError]]] = [
            (request(CHAT, authorization=None), Unauthorized),
            (request(CHAT, authorization="Bearer"), Unauthorized),
            (request(CHAT, authorization="Bearer wrong"), Unauthorized),
            (request(CHAT, authorization="Basic t0ken"), Unauthorized),
            (request(CHAT, authorization="Bearer \xff"), Unauthorized),
            (request(CHAT, replica="other"), Unavailable),
            (request(CHAT, replica=""), Unavailable),
            (request(CHAT, replica=None), Unavailable),
            (request("/sleep"), NotFound),
            (request("/metrics"), NotFound),
            (request("/v1/../sleep"), NotFound),
            (request("/v1/chat/completions/"), NotFound),
            (request("/v1/chat/completions?x=1"), NotFound),
            (request("/v1%2fchat/completions"), NotFound),
            (request("/"), NotFound),
            (request(""), NotFound),
        ]
        for refused, error in refusals:
            with pytest.raises(error):
                admission.admit(refused)
        assert replicas.reports()[0].busy == 0, "a refusal leaves no trace"

        admitted = [admission.admit(request(CHAT)) for _ in range(3)]
        assert {call.path for call in admitted} == {b"/v1/chat/completions"}
        assert {f"{c.target.host}:{c.target.port}" for c in admitted} == {replicas.reports()[0].address}
        assert replicas.reports()[0].busy == 3
        for call in admitted:
            call.finished(RelayOutcome(200, 0, None, None))
            call.finished(RelayOutcome(200, 0, None, None))
        assert replicas.reports()[0].busy == 0, "each is counted out once"

        replicas.follow([replace(order, want=Want.GONE)])
        with pytest.raises(Unavailable):
            admission.admit(request(CHAT))


async def test_a_worker_without_an_identity_admits_nobody(bench: Bench) -> None:
    async with ReplicaSet(bench.context(), lambda: None) as replicas:
        for shown in (None, "Bearer ", "Bearer None"):
            with pytest.raises(Unavailable):
                ProxyAdmission(replicas, lambda: None).admit(request(CHAT, authorization=shown))
