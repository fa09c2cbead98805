"""Lets gateways of this machine call our engines directly: tells them which take requests now, and counts what they have
in flight.

The worker stays the owner of the count. What a gateway reports counts as in flight at the replica, as if it had come
through the proxy, and ends with the gateway's connection: one that dies leaves no count behind. Reports may be a moment
old, but not when it matters: before an engine is stopped or put to sleep, `wait_acknowledged` returns only when each
gateway has heard that the engine takes no more requests, and has reported what it still has there.
"""

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter

from turnout.engines.servers.engine_servers import relay_paths
from turnout.errors import NotFound
from turnout.fleet.replica_rules import ReplicaId
from turnout.telemetry.log import get_log
from turnout.worker.direct_messages import (
    MAX_DIRECT_MESSAGE_BYTES,
    Announcement,
    DirectEngine,
    InFlightCounts,
    is_same_user,
    listen_for_gateways,
)
from turnout.worker.replica_owner import InFlight, ReplicaOwner
from turnout.worker.replica_set import ReplicaSet

log = get_log()

_ACKNOWLEDGE_S = 5.0


class _ConnectedGateway:
    """`seen` is the last announcement that it acknowledged."""

    def __init__(self) -> None:
        self.announce_due = asyncio.Event()
        self.seen = 0
        self.in_flight: dict[ReplicaId, list[InFlight]] = {}


class DirectAccess:
    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas
        self._version = 1
        self._engines: tuple[DirectEngine, ...] = ()
        self._gateways: set[_ConnectedGateway] = set()
        self._reported = asyncio.Event()

    def announce(self) -> None:
        """Tells all gateways at once if another set of engines takes requests now."""
        engines = tuple(e for replica in self._replicas.all() if (e := _engine(replica)) is not None)
        if engines != self._engines:
            self._engines = engines
            self._version += 1
            for gateway in self._gateways:
                gateway.announce_due.set()

    async def wait_acknowledged(self) -> None:
        """Returns when every gateway has acknowledged the present announcement, or has not done so in time."""
        version = self._version
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_S):
                while any(gateway.seen < version for gateway in self._gateways):
                    self._reported.clear()
                    await self._reported.wait()
        except TimeoutError:
            log.warning("a gateway did not acknowledge that engines were withdrawn", within_s=_ACKNOWLEDGE_S)

    async def listen(self, url: str) -> None:
        """Serves gateways that know this worker by `url`, for ever. Raises OSError."""
        async with asyncio.TaskGroup() as group:

            def connected(reader: StreamReader, writer: StreamWriter) -> None:
                if is_same_user(writer.get_extra_info("socket")):
                    group.create_task(self.serve(reader, writer), name="gateway that calls engines directly")
                else:
                    writer.close()

            server = await asyncio.start_unix_server(
                connected, sock=listen_for_gateways(url), limit=MAX_DIRECT_MESSAGE_BYTES
            )
            try:
                await server.serve_forever()
            finally:
                server.close()  # or the next try to listen would find the name taken

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Until the gateway hangs up, or says what makes no sense."""
        gateway = _ConnectedGateway()
        self._gateways.add(gateway)
        announcing = asyncio.create_task(self._send_announcements(gateway, writer), name="announce engines")
        try:
            while line := await reader.readline():
                self._count_all(gateway, InFlightCounts.model_validate_json(line))
        except (OSError, ValueError) as err:  # no line, or not a count
            log.warning("gateway calls engines directly no more", reason=type(err).__name__)
        finally:
            self._gateways.discard(gateway)
            for held in gateway.in_flight.values():
                for one in held:
                    one.end()
            self._reported.set()
            announcing.cancel()
            writer.close()

    async def _send_announcements(self, gateway: _ConnectedGateway, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError):  # it has hung up, and whoever reads notices it, too
            while True:
                gateway.announce_due.clear()
                writer.write(Announcement(version=self._version, engines=self._engines).line())
                await writer.drain()
                await gateway.announce_due.wait()

    def _count_all(self, gateway: _ConnectedGateway, reported: InFlightCounts) -> None:
        for replica in reported.counts.keys() | gateway.in_flight.keys():
            self._count(gateway.in_flight, replica, reported.of(replica))
        gateway.seen = min(reported.seen, self._version)
        self._reported.set()

    def _count(self, in_flight: dict[ReplicaId, list[InFlight]], id_: ReplicaId, count: int) -> None:
        """Brings what a gateway has in flight at one replica to `count`."""
        held = in_flight.setdefault(id_, [])
        while len(held) > count:
            held.pop().end()
        try:
            replica = self._replicas.find(id_)
        except NotFound:
            replica = None  # this worker was restarted, or the replica is long gone
        while replica is not None and len(held) < count:
            held.append(replica.count_direct())
        if not held:
            del in_flight[id_]


def _engine(replica: ReplicaOwner) -> DirectEngine | None:
    launch = replica.direct_launch()
    if launch is None:
        return None
    paths = tuple(sorted(relay_paths(replica.model.engine)))
    return DirectEngine(replica=replica.id, port=launch.port, paths=paths, key=launch.key)
