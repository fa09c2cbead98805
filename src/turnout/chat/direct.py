"""Calls engines of this machine directly, past their workers' proxies.

The gateway holds one session with each worker that runs here (see `worker.direct_messages`). A direct route exists only
while the session does, and only to an engine that the worker announces. Requests in flight are counted here and reported
to the worker, at most every `_REPORT_S`, and at once when an engine is withdrawn. If a direct route fails, the request is
retried through the worker's proxy.
"""

import asyncio
import contextlib
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Collection

from turnout.engines.servers.launch_plan import LOOPBACK
from turnout.fleet.replica_rules import ReplicaId
from turnout.relay import Target
from turnout.telemetry.log import get_log
from turnout.worker.direct_messages import (
    MAX_DIRECT_MESSAGE_BYTES,
    Announcement,
    DirectEngine,
    InFlightCounts,
    connect_to_worker,
)

log = get_log()

_REPORT_S = 0.05
_LOOK_S = 1.0  # for workers that have come; one that is elsewhere costs a system call
_UNREACHABLE_S = 30.0
_NONE = Announcement(version=0, engines=())


class DirectRoute:
    """To one engine. A request calls `enter` before it uses the route, and `leave` once, whatever happened."""

    __slots__ = ("_session", "engine", "lines", "paths", "target")

    def __init__(self, engine: DirectEngine, session: "DirectSession") -> None:
        self.engine = engine
        self.target = Target(LOOPBACK, engine.port)
        self.lines = b"authorization: Bearer %b\r\n" % engine.key.encode() if engine.key else b""
        self.paths = frozenset(path.encode() for path in engine.paths)
        self._session = session

    def enter(self) -> None:
        self._session.count(self.engine.replica, 1)

    def leave(self) -> None:
        self._session.count(self.engine.replica, -1)

    def unreachable(self) -> None:
        """The route is not used for a while."""
        log.warning("engine was not reached directly", replica=self.engine.replica)
        self._session.close(self)


class DirectSession:
    """With one worker: its direct routes, and what is in flight on them, also after the worker has hung up."""

    def __init__(self) -> None:
        self.connected = False
        self.routes: dict[ReplicaId, DirectRoute] = {}
        self._counts: dict[ReplicaId, int] = {}
        self._announced = _NONE
        self._report_due = asyncio.Event()
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
            asyncio.get_running_loop().call_later(_UNREACHABLE_S, self._open_routes)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Until the worker hangs up. Raises OSError, and ValueError for what is no announcement."""
        reporting = asyncio.create_task(self._send_counts(writer), name="report what is in flight directly")
        try:
            while line := await reader.readline():
                self._announced = Announcement.model_validate_json(line)
                self.routes = {r: route for r, route in self.routes.items() if self._is_announced(route)}
                self._open_routes()
                self._report_due.set()  # engines that are missing are not called from here on
        finally:
            self._announced = _NONE
            self.routes.clear()
            reporting.cancel()
            writer.close()

    def _is_announced(self, route: DirectRoute) -> bool:
        return route.engine in self._announced.engines

    def _open_routes(self) -> None:
        for engine in self._announced.engines:
            if engine.replica not in self.routes:
                self.routes[engine.replica] = DirectRoute(engine, self)

    async def _send_counts(self, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError):  # it has hung up, and whoever reads notices it, too
            while True:
                await self._report_due.wait()
                self._report_due.clear()
                self._scheduled = False
                writer.write(InFlightCounts(seen=self._announced.version, counts=dict(self._counts)).line())
                await writer.drain()


class DirectRoutes:
    """Of one gateway. `workers` returns the URLs of those that it has routes to."""

    def __init__(self, workers: Callable[[], Collection[str]]) -> None:
        self._workers = workers
        self._sessions: dict[str, DirectSession] = {}

    def find(self, worker_url: str, replica: ReplicaId) -> DirectRoute | None:
        """Called for every request. By worker first: none can announce another's replica."""
        session = self._sessions.get(worker_url)
        return None if session is None else session.routes.get(replica)

    async def run(self) -> None:
        """Looks for workers on this machine, for ever. A session lasts until the worker hangs up: replicas without a
        route may still have requests."""
        async with asyncio.TaskGroup() as group:
            while True:
                for url in self._workers():
                    session = self._sessions.get(url)
                    if session is None or not session.connected:
                        connection = connect_to_worker(url)
                        if connection is not None:
                            session = self._sessions.setdefault(url, DirectSession())
                            session.connected = True
                            group.create_task(
                                _hold(url, session, connection), name=f"direct session with {url}"
                            )
                self._sessions = {u: s for u, s in self._sessions.items() if s.connected or s.busy}
                await asyncio.sleep(_LOOK_S)


async def _hold(url: str, session: DirectSession, connection: socket.socket) -> None:
    reason = "it hung up"
    log.info("engines of a worker are called directly", worker=url)
    try:
        await session.serve(
            *await asyncio.open_unix_connection(sock=connection, limit=MAX_DIRECT_MESSAGE_BYTES)
        )
    except (OSError, ValueError) as err:  # not its text, which may quote a message: there are keys in it
        reason = type(err).__name__
    finally:
        session.connected = False
        log.info("engines of a worker are called through its proxy", worker=url, reason=reason)
