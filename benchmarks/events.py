"""From a rank's report to a watching client, over WebSockets and server-sent events, beside the plainest ways to pass it on.

Two limits in the same run: one Redis client that blocks on the stream (XREAD), and a bare relay that writes each
event to as many sockets and does nothing else: no HTTP, no keys, no replay. Rank and relay are processes of their
own. All clocks are one clock, because everything is on one machine. An event's time is taken before its write, as
ranks do, so the write is part of every latency here.
"""

import asyncio
import gc
import json
import multiprocessing
import resource
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, cast

import httpx
import psutil
import uvloop
from redis.asyncio import Redis

from benchmarks.figures import Table, percentile, say
from benchmarks.machine import Pressure, cpu_s
from benchmarks.service import MODEL, Service, front, of_checkout
from benchmarks.sockets import EventStream, Relay, Socket
from turnout.run.config import Config
from turnout.run.open_stores import find_redis_url, open_stores
from turnout.tasks.task_rules import GangId, Progressed, Stage, TaskId

CLIENTS = (1, 100, 1_000)
RATE = 10.0  # events a second; a rank reports a step every second or so
EVENTS = 60
_OF = 1_000_000
_SETTLE_S = 1.5
_PATIENCE_S = 60.0
_SPAWN = multiprocessing.get_context("spawn")

Arrivals = dict[int, float]


@dataclass(frozen=True, slots=True)
class Written:
    """One event as the rank wrote it: its step, its time, and how long the write took."""

    step: int
    at: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Watched:
    """What `clients` saw of EVENTS events; `first_s` are the latencies of the one before them."""

    latencies_s: list[float]
    first_s: list[float]
    writes_s: list[float]
    plainly_s: list[float]
    server_cpu_s: float
    client_share: float
    lost: int


class Helper:
    """A process of our own that is told things and answers; it ends when the pipe does."""

    def __init__(self, work: Callable[[Config, Connection], None], config: Config) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=work, args=(config, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    async def ask(self, *words: Any) -> Any:
        self._pipe.send(words)
        return await self.hear()

    async def hear(self) -> Any:
        if not await asyncio.to_thread(self._pipe.poll, _PATIENCE_S):
            raise TimeoutError("a helper process said nothing")
        return self._pipe.recv()

    async def end(self) -> None:
        self._pipe.close()
        await asyncio.to_thread(self._process.join, 5)


async def measure(beside: Path | None = None) -> Table:
    """Event latency and CPU from a rank to 1, 100 and 1,000 clients. `beside` is another checkout, whose gateway has a Redis
    of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # inherited by the servers
    table = Table(
        f"events: {EVENTS} progress events of one task, {RATE:g} a second; latencies in ms",
        ("clients", "by", "p50", "p99", "max", "first max", "CPU µs/message", "client CPU share", "lost"),
    )
    pressure = Pressure()
    writes: list[float] = []
    async with AsyncExitStack() as stack:
        checkouts = {"": None} if beside is None else {"": None, f", {beside.name}": of_checkout(beside)}
        services: dict[str, Service] = {}
        for name, environ in checkouts.items():
            services[name] = await stack.enter_async_context(front(environ=environ, lease_s=3600.0))
        helpers = {
            name: await stack.enter_async_context(_helpers(service.config))
            for name, service in services.items()
        }
        for clients in CLIENTS:
            for name, service in services.items():
                rank, relay, relay_port = helpers[name]
                task = await submit_one(service)
                assert await rank.ask("claim") == task
                gateway = service.parts["gateway"]
                ways = {
                    "ws": (Socket, f"/v1/videos/{task}/ws", service.port, gateway),
                    "sse": (EventStream, f"/v1/videos/{task}/events", service.port, gateway),
                }
                if not name:
                    ways = {"bare relay": (Socket, "/", relay_port, relay.process), **ways}
                for number, (way, (kind, path, port, server)) in enumerate(ways.items()):
                    opening = partial(kind.open, path, port, service.api_key)
                    seen = await _watch(clients, opening, task, 1000 * number + 1, rank, relay, server)
                    say(f"{clients} clients, {way}{name}: {len(seen.latencies_s)} messages")
                    writes += seen.writes_s
                    if way == "bare relay":
                        table.rows.append(_plain_row(seen))
                    table.rows.append(_row(clients, way + name, seen))
    table.notes = [
        f"The rank's own write is a part of every latency; its median was {median(writes) * 1e3:.2f} ms.",
        "XREAD: one Redis client that blocks on the stream. bare relay: it only reads the stream and writes to the sockets.",
        "ws: /v1/videos/{id}/ws of the gateway. sse: its /v1/videos/{id}/events.",
        "first max: the slowest client's first event after it connected, not part of the other figures.",
        "CPU µs/message: the server's. lost: events that a client did not get.",
        pressure.note(),
    ]
    return table


def _plain_row(seen: Watched) -> Sequence[str | int | float | None]:
    plainly = seen.plainly_s
    return (1, "XREAD", median(plainly) * 1e3, percentile(plainly, 0.99) * 1e3, *(None,) * 5)


def _row(clients: int, way: str, seen: Watched) -> Sequence[str | int | float | None]:
    return (
        clients,
        way,
        median(seen.latencies_s) * 1e3,
        percentile(seen.latencies_s, 0.99) * 1e3,
        max(seen.latencies_s) * 1e3,
        max(seen.first_s) * 1e3,
        seen.server_cpu_s / len(seen.latencies_s) * 1e6,
        seen.client_share,
        seen.lost,
    )


async def _watch(
    clients: int,
    opening: Callable[[], Awaitable[Socket]],
    task: TaskId,
    start: int,
    rank: Helper,
    relay: Helper,
    server: psutil.Process,
) -> Watched:
    """Connects to a server, lets the rank report from step `start` on, and takes the times."""
    began = time.monotonic()
    sockets = await _connect(clients, opening)
    if time.monotonic() - began > 1:
        say(f"{clients} clients connected in {time.monotonic() - began:.1f} s")
    await asyncio.sleep(_SETTLE_S)
    first: list[Written] = await rank.ask("report", start, 1)
    await asyncio.sleep(_SETTLE_S)
    gc.collect()
    gc.freeze()  # thousands of kept frames must not make this process pause
    me = psutil.Process()
    server_before, client_before, began = cpu_s(server), cpu_s(me), time.monotonic()
    written: list[Written] = await rank.ask("report", start + 1, EVENTS)
    client_share = (cpu_s(me) - client_before) / (time.monotonic() - began)
    await asyncio.sleep(_SETTLE_S)
    server_cpu_s = cpu_s(server) - server_before
    plainly: Arrivals = await relay.ask("arrivals")
    arrivals = _arrivals(sockets, task)
    for socket in sockets:
        socket.close()
    latencies = [seen[w.step] - w.at for seen in arrivals for w in written if w.step in seen]
    firsts = [seen[w.step] - w.at for seen in arrivals for w in first if w.step in seen]
    return Watched(
        latencies,
        firsts,
        [w.took_s for w in written],
        [plainly[w.step] - w.at for w in written],
        server_cpu_s,
        client_share,
        clients * (EVENTS + 1) - len(latencies) - len(firsts),
    )


async def submit_one(service: Service) -> TaskId:
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, trust_env=False) as client:
        answer = await client.post("/v1/videos", json={"model": MODEL, "prompt": "a red ball"})
        answer.raise_for_status()
        return TaskId(answer.json()["id"])


async def _connect(clients: int, opening: Callable[[], Awaitable[Socket]]) -> list[Socket]:
    sockets = list[Socket]()
    while len(sockets) < clients:
        some = min(50, clients - len(sockets))
        sockets += await asyncio.gather(*[opening() for _ in range(some)])
    return sockets


def _arrivals(sockets: list[Socket], task: TaskId) -> list[Arrivals]:
    """When each client got each step. The same text goes to all of them, so it is read once."""
    known: dict[bytes, int | None] = {}

    def step_of(text: bytes) -> int | None:
        if text not in known:
            said = json.loads(text)
            known[text] = said["step"] if said["type"] == "video.progress" and said["video"] == task else None
        return known[text]

    return [
        {step: at for at, text in socket.frames if (step := step_of(text)) is not None} for socket in sockets
    ]


@asynccontextmanager
async def _helpers(config: Config) -> AsyncGenerator[tuple[Helper, Helper, int]]:
    """The rank, the relay and the relay's port."""
    rank, relay = Helper(be_rank, config), Helper(_be_relay, config)
    try:
        await rank.hear()
        yield rank, relay, await relay.hear()
    finally:
        await rank.end()
        await relay.end()


def be_rank(config: Config, orders: Connection) -> None:
    """Claims the next task, or reports steps of the last one (from, how many) at the set rate; as it is told."""

    async def obey() -> None:
        async with open_stores(config) as stores:
            orders.send("ready")
            task = None
            while True:
                match await asyncio.to_thread(orders.recv):
                    case ("claim",):
                        task = await stores.queue.claim(MODEL, GangId("benchmark"), config.tasks.limits)
                        orders.send(task and task.id)
                    case ("report", int(start), int(count)):
                        assert task
                        written: list[Written] = []
                        began = time.monotonic()
                        for number in range(count):
                            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
                            step = start + number
                            event = Progressed(time.time(), task.attempt, Stage.DENOISING, step, _OF)
                            await stores.tasks.apply(task.id, event)
                            written.append(Written(step, event.at, time.time() - event.at))
                        orders.send(written)
                    case order:
                        raise ValueError(order)

    _until_the_pipe_ends(obey)


def _be_relay(config: Config, orders: Connection) -> None:
    """Passes the stream of all events on to its sockets; tells when each step came, and begins anew."""
    arrivals: Arrivals = {}

    async def pass_on(relay: Relay) -> None:
        redis: Any = cast("Any", Redis).from_url(find_redis_url(config), protocol=2)
        stream = f"{config.redis.redis_prefix}:events"
        newest = await redis.xrevrange(stream, count=1)
        cursor = newest[0][0] if newest else "0"
        while True:
            for _, entries in await redis.xread({stream: cursor}, block=2_000) or ():
                now = time.time()
                for entry, fields in entries:
                    cursor = entry
                    event = json.loads(fields[b"e"])
                    if event["kind"] == "progress":
                        arrivals[event["step"]] = now
                        note = {"type": "video.progress", "video": fields[b"t"].decode(), **event}
                        relay.send(json.dumps(note).encode())

    async def obey() -> None:
        relay = Relay()
        server = await asyncio.get_running_loop().create_server(
            relay.connection, "127.0.0.1", 0, backlog=1024
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(pass_on(relay), name="pass events on")
            orders.send(server.sockets[0].getsockname()[1])
            while True:
                await asyncio.to_thread(orders.recv)
                orders.send(dict(arrivals))
                arrivals.clear()

    _until_the_pipe_ends(obey)


def _until_the_pipe_ends(work: Callable[[], Any]) -> None:
    try:
        uvloop.run(work())
    except* EOFError:
        pass
