"""The gateway's end of the straight way: which engines it reaches past their workers' doors, and what it has there.

It holds a tally with each worker (see `wire.tally`): a WebSocket at the worker's door. A way is open only as long as that
is, and only to an engine that the worker announces and that shares a network with us: on this very machine, or, with a
key, at an address that has answered. What is under way is counted here and told to the worker, at most every `_TELL_S`,
and at once when an engine is withdrawn.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from turnout.domain.addresses import is_host
from turnout.domain.backoff import backoff_s
from turnout.domain.serving import ReplicaId, WorkerId
from turnout.observe import get_log
from turnout.ports import WorkerDoor
from turnout.relay import Target
from turnout.schemas.direct_messages import (
    GATEWAY_HEADER,
    MAX_TALLY_BYTES,
    TALLY_PATH,
    Announcement,
    Counts,
    DirectEngine,
)

log = get_log()

_TELL_S = 0.05
_OPEN_S = 5.0
_PING_S = 5.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0  # a worker that has no tally, or whose proxy passes no WebSockets, is not asked often
_PROBE_S = 2.0
_AGAIN_S = 30.0  # an address that did not answer
_MAX_PROBE_BYTES = 64 * 1024
_FORGET_S = 5.0
_NOTHING = Announcement(version=0, network="", engines=())


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Leads nowhere: a worker must not send us to another address, and our token along."""
        return exc


class DirectRoute:
    """To one engine. Whoever goes it counts in first, and out once, whatever happened."""

    __slots__ = ("_tally", "engine", "lines", "paths", "target")

    def __init__(self, engine: DirectEngine, tally: "DirectSession") -> None:
        self.engine = engine
        self.target = Target(engine.host, engine.port)
        self.lines = b"authorization: Bearer %b\r\n" % engine.key.encode() if engine.key else b""
        self.paths = frozenset(path.encode() for path in engine.paths)
        self._tally = tally

    def enter(self) -> None:
        self._tally.count(self.engine.replica, 1)

    def leave(self) -> None:
        self._tally.count(self.engine.replica, -1)

    def unreachable(self) -> None:
        """It let nobody through: it is not used until it was tried again."""
        log.warning("engine was not reached straight", replica=self.engine.replica)
        self._tally.shut(self)


class DirectSession:
    """With one worker."""

    def __init__(self, worker: WorkerId, gateway: str, network: str) -> None:
        self.door: WorkerDoor | None = None
        self.ways: dict[ReplicaId, DirectRoute] = {}
        self._worker = worker
        self._gateway = gateway
        self._network = network
        self._counts: dict[ReplicaId, int] = {}  # outlives a connection: requests do, too
        self._offered = _NOTHING
        self._look = asyncio.Event()
        self._tell = asyncio.Event()
        self._told: Counts | None = None
        self._due = False

    @property
    def busy(self) -> bool:
        return bool(self._counts)

    def count(self, replica: ReplicaId, change: int) -> None:
        count = self._counts.get(replica, 0) + change
        if count:
            self._counts[replica] = count
        else:
            del self._counts[replica]
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_TELL_S, self._tell.set)

    def shut(self, way: DirectRoute) -> None:
        if self.ways.get(way.engine.replica) is way:
            del self.ways[way.engine.replica]

    async def run(self, door: WorkerDoor, tls: ssl.SSLContext, http: httpx.AsyncClient) -> None:
        """Keeps the connection, for ever; whatever goes wrong is tried again."""
        failures, told = 0, ""
        url = door.url.rstrip("/").replace("http", "ws", 1) + TALLY_PATH
        headers = {"authorization": f"Bearer {door.token}", GATEWAY_HEADER: self._gateway}
        while True:
            try:
                async with _Connect(
                    url,
                    additional_headers=headers,
                    ssl=tls if url.startswith("wss:") else None,
                    proxy=None,
                    compression=None,
                    max_size=MAX_TALLY_BYTES,
                    open_timeout=_OPEN_S,
                    close_timeout=1,
                    ping_interval=_PING_S,
                    ping_timeout=2 * _PING_S,
                ) as socket:
                    failures, told = 0, ""
                    await self._talk(socket, http)
            except* Exception as errors:  # noqa: BLE001 - requests go through the door meanwhile
                failures += 1
                if told != (told := _reason(errors.exceptions[0])):
                    log.info("no tally with worker", worker=self._worker, reason=told)
            await asyncio.sleep(backoff_s(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, random.random()))

    async def _talk(self, socket: ClientConnection, http: httpx.AsyncClient) -> None:
        self._told = None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._say(socket), name=f"tally out {self._worker}")
            group.create_task(self._explore(http), name=f"tally ways {self._worker}")
            try:
                while True:
                    self._hear(Announcement.model_validate_json(await socket.recv()))
            finally:  # at once, before the others are waited for: the worker counts us no more
                self._offered = _NOTHING
                self.ways.clear()

    def _hear(self, offered: Announcement) -> None:
        """What is not offered any more is not used from here on; that is what our answer acknowledges."""
        self._offered = offered
        for way in [way for way in self.ways.values() if way.engine not in offered.engines]:
            self.shut(way)
        self._tell.set()
        self._look.set()

    async def _say(self, socket: ClientConnection) -> None:
        while True:
            await self._tell.wait()
            self._tell.clear()
            self._due = False
            counts = Counts(seen=self._offered.version, counts=dict(self._counts))
            if counts != self._told:
                self._told = counts
                await socket.send(counts.model_dump_json().encode())

    async def _explore(self, http: httpx.AsyncClient) -> None:
        """Opens ways to what is offered and near; what did not answer is tried again later."""
        while True:
            self._look.clear()
            offered = self._offered
            closed = [e for e in offered.engines if e.replica not in self.ways]
            near = [e for e in closed if is_near(e, offered.network, self._network)]
            answers = await asyncio.gather(*(self._answers(http, engine) for engine in near))
            for engine, answered in zip(near, answers, strict=True):
                if answered and engine in self._offered.engines:  # it may have been withdrawn meanwhile
                    self.ways[engine.replica] = DirectRoute(engine, self)
                    log.info("engine is reached straight", worker=self._worker, replica=engine.replica)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await self._look.wait()

    async def _answers(self, http: httpx.AsyncClient, engine: DirectEngine) -> bool:
        """Whether an engine that serves the model answers there. On this machine there is nothing to find out."""
        if engine.key is None:
            return True
        host = f"[{engine.host}]" if ":" in engine.host else engine.host
        headers = {"authorization": f"Bearer {engine.key}"}
        said = b""
        try:
            async with (
                asyncio.timeout(_PROBE_S),
                http.stream("GET", f"http://{host}:{engine.port}/v1/models", headers=headers) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    said += piece
                    if len(said) > _MAX_PROBE_BYTES:
                        return False
                return answer.status_code == 200 and engine.model.encode() in said
        except (httpx.HTTPError, TimeoutError):
            return False


def _reason(err: BaseException) -> str:
    """Only of errors that cannot quote what was said: there are keys in it."""
    return str(err) if isinstance(err, OSError | WebSocketException) else type(err).__name__


def is_near(engine: DirectEngine, their_network: str, our_network: str) -> bool:
    """Whether the engine's address means the same to us as to its worker. Loopback does on the same machine and network
    only; any other address can be tried, but never without a key: who knows what listens there."""
    try:
        address = ip_address(engine.host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return bool(our_network) and their_network == our_network
    return engine.key is not None and is_host(address)


class DirectRoutes:
    """`network` is ours (see `adapters.network`)."""

    def __init__(self, network: str, tls: ssl.SSLContext) -> None:
        self._network = network
        self._tls = tls
        self._doors: Mapping[WorkerId, WorkerDoor] = {}
        self._tallies: dict[WorkerId, DirectSession] = {}
        self._changed = asyncio.Event()

    def find(self, worker: WorkerId, replica: ReplicaId) -> DirectRoute | None:
        """Asked for every request. By worker first: none can announce another's replica."""
        tally = self._tallies.get(worker)
        return None if tally is None else tally.ways.get(replica)

    def follow(self, doors: Mapping[WorkerId, WorkerDoor]) -> None:
        if doors != self._doors:
            self._doors = doors
            self._changed.set()

    async def run(self, gateway: str) -> None:
        keeping: dict[WorkerId, asyncio.Task[None]] = {}
        # Proxies are for the way out, never for our own network.
        async with httpx.AsyncClient(trust_env=False) as http, asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                self._forget(keeping)
                for worker, door in self._doors.items():
                    tally = self._tallies.get(worker)
                    if tally is not None and tally.door == door:
                        continue
                    if tally is None:
                        tally = self._tallies[worker] = DirectSession(worker, gateway, self._network)
                    else:  # it registered anew; what we have under way there stays counted
                        keeping[worker].cancel()
                        await asyncio.wait({keeping[worker]})
                    tally.door = door
                    keeping[worker] = group.create_task(
                        tally.run(door, self._tls, http), name=f"tally {worker}"
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_FORGET_S):
                        await self._changed.wait()

    def _forget(self, keeping: dict[WorkerId, asyncio.Task[None]]) -> None:
        """Ends the tallies with workers that we have no more routes to, once nothing of ours is under way there: a
        replica that is being stopped has no route, and still counts."""
        for worker, tally in list(self._tallies.items()):
            if worker not in self._doors and not tally.busy:
                keeping.pop(worker).cancel()
                del self._tallies[worker]
