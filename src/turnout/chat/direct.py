"""Calls engines directly, past their workers' proxies, where gateway and engine share a network.

The gateway holds one session with each worker (see `worker.direct_messages`): a WebSocket to the worker. A direct route
exists only while the session does, and only to an engine that the worker announces and that is near: on this very
machine, or, with a key, at an address that has answered. Requests in flight are counted here and reported to the worker,
at most every `_REPORT_S`, and at once when an engine is withdrawn. If a direct route fails, the request is retried
through the worker's proxy.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import AI_NUMERICHOST
from urllib.parse import urlsplit

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from turnout.background import BackgroundLoops
from turnout.backoff import backoff_s
from turnout.fleet.serving import ReplicaId, WorkerId
from turnout.relay import Target
from turnout.store.address_rules import is_host
from turnout.telemetry.log import get_log
from turnout.worker.direct_messages import (
    DIRECT_PATH,
    GATEWAY_HEADER,
    MAX_DIRECT_MESSAGE_BYTES,
    Announcement,
    DirectEngine,
    InFlightCounts,
)

log = get_log()

_REPORT_S = 0.05
_OPEN_S = 5.0
_PING_S = 5.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0  # for a worker without direct access, or behind what passes no WebSockets
_PROBE_S = 2.0
_PROBE_AGAIN_S = 30.0  # an address that did not answer
_MAX_PROBE_BYTES = 64 * 1024
_END_UNUSED_S = 5.0
_NONE = Announcement(version=0, network="", engines=())


@dataclass(frozen=True, slots=True)
class WorkerProxy:
    """Where a worker's proxy listens, the token that it asks for, and the address where it proved to be. A URL with a name
    is never looked up again."""

    url: str
    token: str = field(repr=False)
    address: str = ""


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follows none: a worker must not send us, and our token, to another address."""
        return exc


class DirectRoute:
    """To one engine. A request calls `enter` before it uses the route, and `leave` once, whatever happened."""

    __slots__ = ("_session", "engine", "lines", "paths", "target")

    def __init__(self, engine: DirectEngine, session: "DirectSession") -> None:
        self.engine = engine
        self.target = Target(engine.host, engine.port)
        self.lines = b"authorization: Bearer %b\r\n" % engine.key.encode() if engine.key else b""
        self.paths = frozenset(path.encode() for path in engine.paths)
        self._session = session

    def enter(self) -> None:
        self._session.count(self.engine.replica, 1)

    def leave(self) -> None:
        self._session.count(self.engine.replica, -1)

    def unreachable(self) -> None:
        """The route is not used until the engine was probed again."""
        log.warning("engine was not reached directly", replica=self.engine.replica)
        self._session.close(self)


class DirectSession:
    """With one worker: its direct routes, and what is in flight on them."""

    def __init__(self, worker: WorkerId, gateway: str, network: str, is_ours: Callable[[str], bool]) -> None:
        self.proxy: WorkerProxy | None = None
        self.dropped = False
        self.routes: dict[ReplicaId, DirectRoute] = {}
        self._worker = worker
        self._gateway = gateway
        self._network = network
        self._is_ours = is_ours
        self._counts: dict[ReplicaId, int] = {}  # outlives a connection: requests do, too
        self._announced = _NONE
        self._probe_due = asyncio.Event()
        self._report_due = asyncio.Event()
        self._reported: InFlightCounts | None = None
        self._scheduled = False

    @property
    def busy(self) -> bool:
        return bool(self._counts)

    def count(self, replica: ReplicaId, change: int) -> None:
        count = self._counts.get(replica, 0) + change
        if count:
            self._counts[replica] = count
        else:
            del self._counts[replica]
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(_REPORT_S, self._report_due.set)

    def close(self, route: DirectRoute) -> None:
        if self.routes.get(route.engine.replica) is route:
            del self.routes[route.engine.replica]

    async def run(self, proxy: WorkerProxy, tls: ssl.SSLContext, http: httpx.AsyncClient) -> None:
        """Keeps the session for ever, whatever goes wrong."""
        failures, logged = 0, ""
        url = proxy.url.rstrip("/").replace("http", "ws", 1) + DIRECT_PATH
        host = proxy.address or urlsplit(url).hostname
        headers = {"authorization": f"Bearer {proxy.token}", GATEWAY_HEADER: self._gateway}
        while True:
            try:
                async with _Connect(
                    url,
                    additional_headers=headers,
                    ssl=tls if url.startswith("wss:") else None,
                    proxy=None,
                    host=host,
                    flags=AI_NUMERICHOST,  # a name is not looked up
                    compression=None,
                    max_size=MAX_DIRECT_MESSAGE_BYTES,
                    open_timeout=_OPEN_S,
                    close_timeout=1,
                    ping_interval=_PING_S,
                    ping_timeout=2 * _PING_S,
                ) as socket:
                    failures, logged = 0, ""
                    await self._serve(socket, http)
            except* Exception as errors:  # noqa: BLE001 - requests go through the proxy meanwhile
                failures += 1
                if logged != (logged := _reason(errors.exceptions[0])):
                    log.info("no direct session with worker", worker=self._worker, reason=logged)
            await asyncio.sleep(backoff_s(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, random.random()))

    async def _serve(self, socket: ClientConnection, http: httpx.AsyncClient) -> None:
        self._reported = None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_counts(socket), name=f"report to {self._worker}")
            group.create_task(self._open_routes(http), name=f"direct routes to {self._worker}")
            try:
                while True:
                    self._absorb(Announcement.model_validate_json(await socket.recv()))
            finally:  # at once, before the tasks are waited for: the worker has dropped our counts
                self._announced = _NONE
                self.routes.clear()

    def _absorb(self, announced: Announcement) -> None:
        """Engines that are missing are not called from here on; that is what our next report acknowledges."""
        self._announced = announced
        for route in [route for route in self.routes.values() if route.engine not in announced.engines]:
            self.close(route)
        self._report_due.set()
        self._probe_due.set()

    async def _send_counts(self, socket: ClientConnection) -> None:
        while True:
            await self._report_due.wait()
            self._report_due.clear()
            self._scheduled = False
            counts = InFlightCounts(seen=self._announced.version, counts=dict(self._counts))
            if counts != self._reported:
                self._reported = counts
                await socket.send(counts.model_dump_json().encode())

    async def _open_routes(self, http: httpx.AsyncClient) -> None:
        """Opens routes to announced engines that are near; those that did not answer are probed again later."""
        while True:
            self._probe_due.clear()
            announced = self._announced
            closed = [e for e in announced.engines if e.replica not in self.routes]
            near = [e for e in closed if self._is_near(e, announced.network)]
            answers = await asyncio.gather(*(self._probe(http, engine) for engine in near))
            for engine, answered in zip(near, answers, strict=True):
                if answered and engine in self._announced.engines:  # it may have been withdrawn meanwhile
                    self.routes[engine.replica] = DirectRoute(engine, self)
                    log.info("engine is reached directly", worker=self._worker, replica=engine.replica)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_AGAIN_S):
                    await self._probe_due.wait()

    def _is_near(self, engine: DirectEngine, their_network: str) -> bool:
        proven = self.proxy.address if self.proxy else ""
        same_machine = self._is_ours(proven) and self._is_ours(engine.host)
        return is_near(engine, their_network == self._network != "", proven, same_machine=same_machine)

    async def _probe(self, http: httpx.AsyncClient, engine: DirectEngine) -> bool:
        """Whether an engine that serves the model answers there. On this machine no probe is needed."""
        if engine.key is None:
            return True
        host = f"[{engine.host}]" if ":" in engine.host else engine.host
        headers = {"authorization": f"Bearer {engine.key}"}
        body = b""
        try:
            async with (
                asyncio.timeout(_PROBE_S),
                http.stream("GET", f"http://{host}:{engine.port}/v1/models", headers=headers) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > _MAX_PROBE_BYTES:
                        return False
                return answer.status_code == 200 and engine.model.encode() in body
        except (httpx.HTTPError, TimeoutError):
            return False


def _reason(err: BaseException) -> str:
    """No text of errors that may quote a message: there are keys in it."""
    return str(err) if isinstance(err, OSError | WebSocketException) else type(err).__name__


def is_near(engine: DirectEngine, same_network: bool, proven: str, *, same_machine: bool) -> bool:
    """Whether the engine's address is its worker's, and means the same to us. A worker could name any address of ours or of
    our network, so only the address counts where it has `proven` to be, or our own if that is ours. Loopback also needs
    the same network. Other addresses are called with a key alone: something else may listen there."""
    try:
        address = ip_address(engine.host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return same_network and same_machine
    return engine.key is not None and is_host(address) and (same_machine or _is_same(address, proven))


def _is_same(address: IPv4Address | IPv6Address, proven: str) -> bool:
    try:
        return address == ip_address(proven)
    except ValueError:
        return False


class DirectRoutes:
    """Of one gateway. `network` names its machine and network (see `worker.host_identity`); `is_ours` tells whether an
    address is this machine's own."""

    def __init__(self, network: str, tls: ssl.SSLContext, is_ours: Callable[[str], bool]) -> None:
        self._network = network
        self._is_ours = is_ours
        self._tls = tls
        self._proxies: Mapping[WorkerId, WorkerProxy] = {}
        self._sessions: dict[WorkerId, DirectSession] = {}
        self._changed = asyncio.Event()

    def find(self, worker: WorkerId, replica: ReplicaId) -> DirectRoute | None:
        """Called for every request. By worker first: none can announce another's replica."""
        session = self._sessions.get(worker)
        return None if session is None else session.routes.get(replica)

    def follow(self, proxies: Mapping[WorkerId, WorkerProxy]) -> None:
        if proxies != self._proxies:
            self._proxies = proxies
            self._changed.set()

    def drop(self, workers: Collection[WorkerId]) -> None:
        """Ends the sessions with these workers, whatever is in flight there."""
        for worker in workers:
            session = self._sessions.get(worker)
            if session is not None:
                session.dropped = True
                session.routes.clear()
                self._changed.set()

    async def run(self, gateway: str, loops: BackgroundLoops) -> None:
        """Each session is a loop of its own among `loops`."""
        for session in self._sessions.values():
            session.proxy = None  # of an earlier run, which has closed its client
        # HTTP proxies of the environment are for other networks.
        async with httpx.AsyncClient(trust_env=False) as http:
            while True:
                self._changed.clear()
                await self._end_unused(loops)
                for worker, proxy in self._proxies.items():
                    session = self._sessions.get(worker)
                    if session is not None and session.proxy == proxy:
                        continue
                    if session is None:
                        session = self._sessions[worker] = DirectSession(
                            worker, gateway, self._network, self._is_ours
                        )
                    # A worker may register anew; what is in flight there stays counted.
                    await loops.remove(_loop_name(worker))
                    session.proxy = proxy
                    loops.add(_loop_name(worker), partial(session.run, proxy, self._tls, http))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_UNUSED_S):
                        await self._changed.wait()

    async def _end_unused(self, loops: BackgroundLoops) -> None:
        """Ends sessions with workers that we have no more routes to, once nothing of ours is in flight there: a
        replica that is being stopped has no route, and its requests still count."""
        for worker, session in list(self._sessions.items()):
            if worker not in self._proxies and (session.dropped or not session.busy):
                del self._sessions[worker]
                await loops.remove(_loop_name(worker))


def _loop_name(worker: WorkerId) -> str:
    return f"direct session with {worker}"
