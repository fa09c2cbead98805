"""Gateways that go straight to our engines: tells them which may be reached so, and counts what they have under way.

The count stays the worker's. A gateway's figures become visits of the replica, as if its requests had come through the
door, and end with its connection: one that dies leaves no count behind. They may be a moment old, but never when it
matters: before an engine is stopped or put to sleep, `recalled` waits until each gateway has heard that it takes no more
and has told what it still has there.
"""

import asyncio
from dataclasses import dataclass, field

from pydantic import ValidationError

from turnout.domain.errors import Limited, NotFound, Unavailable
from turnout.domain.serving import ReplicaId
from turnout.engines.engine_servers import relay_paths
from turnout.observe import get_log
from turnout.peer_connections import PeerConnections
from turnout.ports import Channel
from turnout.schemas.direct_messages import MAX_ENGINES, Announcement, Counts, DirectEngine
from turnout.worker.replica_owner import InFlight, ReplicaOwner
from turnout.worker.replica_set import ReplicaSet

log = get_log()

_MAX_GATEWAYS = 256
_ACKNOWLEDGE_S = 5.0


@dataclass(slots=True)
class _Caller:
    """One gateway. `seen` is the last announcement that it acknowledged."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    visits: dict[ReplicaId, list[InFlight]] = field(default_factory=dict[ReplicaId, list[InFlight]])


class DirectAccess:
    """`network` names this machine and its network (see `Announcement`)."""

    def __init__(self, hands: ReplicaSet, network: str) -> None:
        self._hands = hands
        self._network = network
        self._version = 1
        self._engines: tuple[DirectEngine, ...] = ()
        self._callers: dict[str, _Caller] = {}
        self._tallies = PeerConnections[str]("tally")
        self._heard = asyncio.Event()

    def look(self) -> None:
        """A replica may have moved; whoever goes straight is told at once."""
        found = [engine for replica in self._hands.all() if (engine := _engine(replica)) is not None]
        engines = tuple(found[:MAX_ENGINES])
        if engines != self._engines:
            self._engines = engines
            self._version += 1
            for caller in self._callers.values():
                caller.news.set()

    async def recalled(self) -> None:
        """Returns when every gateway has acknowledged what is announced now, or has had time enough."""
        version = self._version
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_S):
                while any(caller.seen < version for caller in self._callers.values()):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            late = [name for name, caller in self._callers.items() if caller.seen < version]
            log.warning("gateways did not acknowledge", gateways=late, within_s=_ACKNOWLEDGE_S)

    async def hold(self, gateway: str, channel: Channel) -> None:
        """Until the channel is closed, or the gateway comes again. Raises Limited."""
        if gateway not in self._tallies and len(self._tallies) >= _MAX_GATEWAYS:
            raise Limited(f"{_MAX_GATEWAYS} gateways are here already", code="too_many_gateways")
        await self._tallies.hold(gateway, self._serve(gateway, channel))

    async def _serve(self, gateway: str, channel: Channel) -> None:
        caller = self._callers[gateway] = _Caller()
        log.info("gateway may go straight", gateway=gateway)
        reason = "replaced, or this worker leaves"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tell(caller, channel), name=f"tell {gateway}")
                await self._hear(caller, channel)
        except* Unavailable as errors:
            reason = str(errors.exceptions[0])
        finally:
            if self._callers.get(gateway) is caller:
                del self._callers[gateway]
            for visits in caller.visits.values():
                for visit in visits:
                    visit.end()
            self._heard.set()
            log.info("gateway goes straight no more", gateway=gateway, reason=reason)

    async def _tell(self, caller: _Caller, channel: Channel) -> None:
        while True:
            caller.news.clear()
            said = Announcement(version=self._version, network=self._network, engines=self._engines)
            await channel.send(said.model_dump_json().encode())
            await caller.news.wait()

    async def _hear(self, caller: _Caller, channel: Channel) -> None:
        while True:
            try:
                heard = Counts.model_validate_json(await channel.receive())
            except ValidationError as err:
                raise Unavailable("it said what is no count") from err
            for replica in heard.counts.keys() | caller.visits.keys():
                self._count(caller.visits, replica, heard.of(replica))
            caller.seen = min(heard.seen, self._version)
            self._heard.set()

    def _count(self, visits: dict[ReplicaId, list[InFlight]], id_: ReplicaId, count: int) -> None:
        """Brings the gateway's visits of one replica to `count`."""
        held = visits.setdefault(id_, [])
        while len(held) > count:
            held.pop().end()
        try:
            replica = self._hands.find(id_)
        except NotFound:
            replica = None  # we were restarted, or it is long gone
        while replica is not None and len(held) < count:
            held.append(replica.found())
        if not held:
            del visits[id_]


def _engine(replica: ReplicaOwner) -> DirectEngine | None:
    launch = replica.straight()
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
