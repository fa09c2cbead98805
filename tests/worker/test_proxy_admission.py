"""Through the worker's port to an engine, with the relay that the product uses."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from tests.conftest import wait_until
from tests.worker.conftest import MODEL, Bench

from turnout.domain.serving import Phase, ReplicaId, Want
from turnout.relay import Relay
from turnout.schemas.worker_messages import ReplicaOrder
from turnout.worker.direct_access import DirectAccess
from turnout.worker.proxy_admission import ProxyAdmission, worker_relay_settings
from turnout.worker.proxy_app import ProxyDoor, control_app
from turnout.worker.replica_set import ReplicaSet

HEADERS = {"authorization": "Bearer t0ken", "x-turnout-replica": "r1"}
CHAT = "/v1/chat/completions"


@asynccontextmanager
async def worker_port(hands: ReplicaSet) -> AsyncIterator[httpx.AsyncClient]:
    door = ProxyDoor(hands, lambda: "t0ken")
    relay = Relay(ProxyAdmission(door), worker_relay_settings())
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(control_app(door, DirectAccess(hands, "")), http=relay.protocol, log_config=None)
    )
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
    async with ReplicaSet(bench.kit(), lambda: None) as hands, worker_port(hands) as client:
        order = ReplicaOrder(replica=ReplicaId("r1"), model=MODEL, gpus=(), want=Want.READY)
        hands.follow([order])
        await wait_until(lambda: hands.reports()[0].phase is Phase.READY, "the replica to be ready")

        answer = await client.post(CHAT, content=b"hello", headers=HEADERS)
        assert (answer.status_code, answer.json()) == (200, {"asked": "hello", "key": None})
        answers = await asyncio.gather(*(client.post(CHAT, content=b"x", headers=HEADERS) for _ in range(20)))
        assert {one.status_code for one in answers} == {200}
        assert hands.reports()[0].busy == 0

        assert (await client.post(CHAT, content=b"x")).status_code == 401
        assert (await client.post(CHAT, headers={**HEADERS, "x-turnout-replica": "r2"})).status_code == 503
        assert (await client.post("/sleep", headers=HEADERS)).status_code == 404
        assert (await client.get("/health")).status_code == 200
        assert hands.reports()[0].busy == 0

        hands.follow([order.model_copy(update={"want": Want.GONE})])
        assert (await client.post(CHAT, content=b"x", headers=HEADERS)).status_code == 503
        assert hands.reports()[0].busy == 0
