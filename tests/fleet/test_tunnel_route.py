"""Who may hold a tunnel, and what it leads to."""

import asyncio
from urllib.parse import urlsplit

import pytest
from tests.conftest import wait_until
from tests.gateways import Gateway, bearer
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from turnout.chat.switchboard import Switchboard
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.tenants.key_rules import Role

MACHINE = {"gpus": [], "memory_bytes": 8, "free_memory_bytes": 8}
JOIN = {"name": "box", "url": "tunnel:", "machine": MACHINE, "probe_key": "k" * 32}


async def join(gateway: Gateway) -> dict[str, str]:
    key = {"Authorization": f"Bearer {await gateway.key(role=Role.WORKER)}"}
    return (await gateway.http.post("/workers/register", json=JOIN, headers=key)).json()


async def test_only_the_worker_itself_may_hold_its_tunnel(served: Gateway) -> None:
    one, other = await join(served), await join(served)
    url = f"{served.base.replace('http', 'ws')}/workers/{one['id']}/tunnel"
    shown = [
        other["secret"],
        "",
        "nonsense",
        await served.key(role=Role.WORKER),
        await served.key(role=Role.ADMIN),
    ]
    for secret in shown:
        with pytest.raises(InvalidStatus, match="401"):
            async with connect(url, additional_headers={"authorization": f"Bearer {secret}"}):
                pass
    with pytest.raises(InvalidStatus, match="401"):
        async with connect(
            url.replace(one["id"], "w-0"), additional_headers={"authorization": f"Bearer {one['secret']}"}
        ):
            pass


async def test_requests_for_a_tunnelled_worker_go_where_its_tunnel_is(served: Gateway) -> None:
    one = await join(served)
    worker = WorkerId(one["id"])
    lines, board, tunnels = (
        served.inside.chat.routes,
        served.inside.chat.switchboard,
        served.inside.workers.tunnels,
    )
    assert isinstance(board, Switchboard)
    route = Route(ReplicaId("r"), worker, "tunnel:", None)
    lines._enrol(await served.stores.fleet.workers.enrolments([worker]))
    lines._known = {"m": ModelRoutes((route,), 8)}
    lines._apply()
    assert board.take("m", None) is None, "its tunnel is not here"
    url = f"{served.base.replace('http', 'ws')}/workers/{worker}/tunnel"
    async with connect(url, additional_headers={"authorization": f"Bearer {one['secret']}"}) as socket:
        assert await socket.recv() == served.inside.name.encode()
        assert tunnels.url(worker) is None, "not before the worker has taken it"
        await socket.send(b"")
        await wait_until(lambda: tunnels.url(worker) is not None, "the tunnel to be held")
        place = board.take("m", None)
        assert place and place.route.url == tunnels.url(worker)
        place.release()
    await wait_until(lambda: board.take("m", None) is None, "the loss of the tunnel to count")


async def test_no_worker_proves_itself_through_its_own_tunnel(served: Gateway) -> None:
    """Its port at the gateway is another's later, and leads elsewhere at other gateways."""
    one = await join(served)
    worker, tunnels = WorkerId(one["id"]), served.inside.workers.tunnels
    url = f"{served.base.replace('http', 'ws')}/workers/{worker}/tunnel"
    async with connect(url, additional_headers=bearer(one["secret"])) as socket:
        await socket.recv()
        await socket.send(b"")
        await wait_until(lambda: tunnels.url(worker) is not None, "the tunnel")
        port = urlsplit(tunnels.url(worker) or "").port
        key = bearer(await served.key(role=Role.WORKER))
        answers: list[str] = []
        for host in (urlsplit(tunnels.url(worker) or "").hostname, "127.0.0.1", "localhost", "[::1]"):
            body = {**JOIN, "url": f"http://{host}:{port}"}
            answer = await served.http.post("/workers/register", json=body, headers=key)
            assert answer.status_code == 400, answer.text
            answers.append(answer.json()["error"]["message"])
        assert "no worker can have" in answers[0]
        with pytest.raises(TimeoutError):  # nothing of it came through the tunnel
            await asyncio.wait_for(socket.recv(), 0.2)
