"""Lets gateways call our engines directly: tells them which take requests now, and counts what they have in flight.

The worker stays the owner of the count. What a gateway reports counts as in flight at the replica, as if it had come
through the proxy, and ends with the gateway's connection: one that dies leaves no count behind. Reports may be a moment
old, but not when it matters: before an engine is stopped or put to sleep, `wait_acknowledged` returns only when each
gateway has heard that the engine takes no more requests, and has reported what it still has there.
"""

import asyncio
from dataclasses import dataclass, field

from pydantic import ValidationError

from turnout.engines.servers.engine_servers import relay_paths
from turnout.errors import Limited, NotFound, Unavailable
from turnout.fleet.serving import ReplicaId
from turnout.telemetry.log import get_log
from turnout.worker.direct_messages import MAX_ENGINES, Announcement, DirectEngine, InFlightCounts
from turnout.worker.peer_connections import PeerConnections
from turnout.worker.replica_owner import InFlight, ReplicaOwner
from turnout.worker.replica_set import ReplicaSet
from turnout.worker.tunnel.mux import Channel

log = get_log()

_MAX_GATEWAYS = 256
_ACKNOWLEDGE_S = 5.0


@dataclass(slots=True)
class _ConnectedGateway:
    """`seen` is the last announcement that it acknowledged."""

    announce_due: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    in_flight: dict[ReplicaId, list[InFlight]] = field(default_factory=dict[ReplicaId, list[InFlight]])


class DirectAccess:
    """`network` names this machine and its network (see `Announcement`)."""

    def __init__(self, replicas: ReplicaSet, network: str) -> None:
        self._replicas = replicas
        self._network = network
        self._version = 1
        self._engines: tuple[DirectEngine, ...] = ()
        self._gateways: dict[str, _ConnectedGateway] = {}
        self._connections = PeerConnections[str]("direct")
        self._reported = asyncio.Event()

    def announce(self) -> None:
        """Tells all gateways at once if another set of engines takes requests now."""
        found = [engine for replica in self._replicas.all() if (engine := _engine(replica)) is not None]
        engines = tuple(found[:MAX_ENGINES])
        if engines != self._engines:
            self._engines = engines
            self._version += 1
            for gateway in self._gateways.values():
                gateway.announce_due.set()

    async def wait_acknowledged(self) -> None:
        """Returns when every gateway has acknowledged the present announcement, or has not done so in time."""
        version = self._version
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_S):
                while self._behind(version):
                    self._reported.clear()
                    await self._reported.wait()
        except TimeoutError:
            late = self._behind(version)
            log.warning("gateways did not acknowledge", gateways=late, within_s=_ACKNOWLEDGE_S)

    async def hold(self, name: str, channel: Channel) -> None:
        """Serves one gateway until the channel is closed, or the gateway connects again. Raises Limited."""
        if name not in self._connections and len(self._connections) >= _MAX_GATEWAYS:
            raise Limited(f"{_MAX_GATEWAYS} gateways are here already", code="too_many_gateways")
        await self._connections.hold(name, self._serve(name, channel))

    async def _serve(self, name: str, channel: Channel) -> None:
        gateway = self._gateways[name] = _ConnectedGateway()
        log.info("gateway may call engines directly", gateway=name)
        reason = "replaced, or this worker leaves"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_announcements(gateway, channel), name=f"announce to {name}")
                await self._receive_counts(gateway, channel)
        except* Unavailable as errors:
            reason = str(errors.exceptions[0])
        finally:
            if self._gateways.get(name) is gateway:
                del self._gateways[name]
            for held in gateway.in_flight.values():
                for one in held:
                    one.end()
            self._reported.set()
            log.info("gateway calls engines directly no more", gateway=name, reason=reason)

    async def _send_announcements(self, gateway: _ConnectedGateway, channel: Channel) -> None:
        while True:
            gateway.announce_due.clear()
            message = Announcement(version=self._version, network=self._network, engines=self._engines)
            await channel.send(message.model_dump_json().encode())
            await gateway.announce_due.wait()

    async def _receive_counts(self, gateway: _ConnectedGateway, channel: Channel) -> None:
        while True:
            try:
                reported = InFlightCounts.model_validate_json(await channel.receive())
            except ValidationError as err:
                raise Unavailable("its message is not a count") from err
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

    def _behind(self, version: int) -> list[str]:
        return [name for name, gateway in self._gateways.items() if gateway.seen < version]


def _engine(replica: ReplicaOwner) -> DirectEngine | None:
    launch = replica.direct_launch()
    if launch is None:
        return None
    return DirectEngine(
        replica=replica.id,
        model=replica.model.name,
        host=launch.host,
        port=launch.port,
        paths=tuple(sorted(relay_paths(replica.model.engine))),
        key=launch.key,
    )
