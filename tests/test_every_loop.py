"""Kills each background loop of gateway, manager and worker, by an error inside it and by a cancellation, and sees that the
part does all of its work afterwards."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Stores, wait_until
from tests.gateways import Chat, chatting
from tests.relay.kit import Call
from tests.worker.scripted_gateway import KEY, ScriptedGateway
from turnout.background import BackgroundLoops
from turnout.run import run_manager, run_worker
from turnout.run.config import load
from turnout.run.joining import Joining
from turnout.worker.gang_fork_server import GangForkServer

ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"
pytestmark = pytest.mark.parametrize(
    "error", [RuntimeError("broken inside"), None], ids=["error", "cancelled"]
)


def break_loop(name: str, error: Exception | None) -> bool:
    """Makes what the loop waits for raise, wherever that is; None cancels it, as a stranger might."""
    task: Any = next(task for task in asyncio.all_tasks() if task.get_name() == name)
    if error is None:
        return task.cancel()
    waiter = task._fut_waiter
    while isinstance(waiter, asyncio.Task):
        waiter = waiter._fut_waiter  # type: ignore[attr-defined]
    if waiter is None or waiter.done():
        return False  # it runs just now
    waiter.set_exception(type(error)(*error.args))
    return True


async def break_each(
    loops: BackgroundLoops, error: Exception | None, works: Callable[[], Awaitable[None]]
) -> None:
    for name in list(loops.states()):
        await wait_until(lambda name=name: break_loop(name, error), f"{name} to wait for something")
        await works()
        assert loops.alive
    restarts = loops.restarts()
    caught = {name for name, count in restarts.items() if not count}
    # These catch every error, and say so: sessions with workers, and the tail, which passes over unreadable events.
    assert caught <= ({"event tail"} if error else set()), caught


async def answer(call: Call) -> None:
    said = {"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    await call.json(json.dumps(said).encode())


async def test_a_gateway_does_all_of_its_work(
    stores: Stores, tmp_path: Path, error: Exception | None
) -> None:
    async with (
        chatting(stores, tmp_path, limit_chat_requests_per_minute=60_000) as chat,
        chat.client() as http,
    ):
        await chat.replica(answer)
        inside = chat.gateway.inside
        rounds = 0

        async def used() -> int:
            rows = (await http.get("/v1/usage")).json()["data"]
            return sum(row["requests"] for row in rows)

        async def tells() -> bool:
            """A tail that broke goes on half a second later, from the newest event: the one of a task that came meanwhile is
            in its story alone."""
            seen = len(heard)
            await chat.gateway.submit()
            await asyncio.sleep(0.1)
            return len(heard) > seen

        async def works() -> None:
            nonlocal rounds
            rounds += 1
            assert (await http.post(PATH, json=ASK)).status_code == 200
            await chat.route(concurrency=64 + rounds)  # "routes"
            assert await limited_and_admitted(chat, rounds)
            await stores.link.client.delete(stores.link.keys.demand(inside.name))
            await wait_until(lambda: reported(stores, inside.name), "demand to be reported")
            await wait_until(tells, "an event")

        heard: list[object] = []
        inside.videos.live._observers = (
            *inside.videos.live._observers,
            lambda recorded, _: heard.append(recorded),
        )
        await chat.gateway.submit()
        await wait_until(lambda: bool(heard), "the first event")
        await break_each(inside.background, error, works)
        await wait_until(lambda: all_used(used, rounds), "usage to be written")


async def limited_and_admitted(chat: Chat, number: int) -> bool:
    """A tenant that was never seen needs a share of its account first."""
    token = await chat.gateway.key(f"tenant-{number}")
    async with chat.client() as http:
        answered = await http.post(PATH, json=ASK, headers={"authorization": f"Bearer {token}"})
        return answered.status_code == 200


async def reported(stores: Stores, gateway: str) -> bool:
    return gateway in await stores.fleet.demand.all()


async def all_used(used: Callable[[], Awaitable[int]], count: int) -> bool:
    return await used() >= count


async def test_a_manager_does_all_of_its_work(
    stores: Stores, valkey: str, tmp_path: Path, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = stores.link.keys.prefix
    config = load(
        {"state_dir": str(tmp_path / "m"), "redis_url": valkey, "redis_prefix": prefix}, {}, None
    ).config
    made: list[BackgroundLoops] = []

    class Watched(BackgroundLoops):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(run_manager, "BackgroundLoops", Watched)
    stopping = asyncio.Event()
    managing = asyncio.create_task(run_manager.manage(config, stopping))

    async def works() -> None:
        for name in ("manager", "fleet"):
            await wait_until(lambda name=name: held(stores, name), f"the right {name} to be held")
            await stores.link.client.delete(stores.link.keys.mutex(name))
        await wait_until(
            lambda: all(names <= running() for names in [set(made[0].states())]), "all loops to run"
        )

    await wait_until(lambda: bool(made) and made[0].alive, "the manager")
    await works()
    await break_each(made[0], error, works)
    stopping.set()
    await asyncio.wait_for(managing, 10)


async def held(stores: Stores, name: str) -> bool:
    return await stores.mutex.holder(name) is not None


def running() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


async def test_a_worker_does_all_of_its_work(
    stores: Stores, valkey: str, tmp_path: Path, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = ScriptedGateway(heartbeat_s=0.2)
    await gateway.start()
    made: list[BackgroundLoops] = []
    leave: list[Callable[[], None]] = []

    class Watched(BackgroundLoops):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(run_worker, "BackgroundLoops", Watched)
    monkeypatch.setattr(run_worker, "on_stop", leave.append)
    monkeypatch.setattr(
        run_worker, "GangForkServer", partial(GangForkServer, imports=("json",))
    )  # torch takes seconds
    values = {
        "state_dir": str(tmp_path / "w"),
        "redis_url": valkey,
        "redis_prefix": stores.link.keys.prefix,
        "blobs": str(tmp_path / "objects"),
    }
    config = load(values, {}, None).config
    joining = Joining(gateway.url, KEY, "box", tunnel=True)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        working = asyncio.create_task(run_worker.run_engine_worker(config, joining, listening))

        async def works() -> None:
            seen = len(gateway.heartbeats)
            await wait_until(lambda: len(gateway.heartbeats) > seen, "a heartbeat")
            await wait_until(lambda: set(made[0].states()) <= running(), "all loops to run")

        await wait_until(lambda: bool(gateway.heartbeats), "the worker to join")
        assert set(made[0].states()) == {"joiner", "tunnels", "gangs", "logs", "gang fork server"}
        await break_each(made[0], error, works)
        leave[0]()
        await asyncio.wait_for(working, 20)
    await gateway.die()
