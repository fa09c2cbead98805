"""Both ends of a direct session under any order of requests and stops: an engine is never stopped with a request inside."""

import asyncio
import socket
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.chat import direct
from turnout.chat.direct import DirectRoute, DirectSession
from turnout.engines.servers.engine_servers import Launch
from turnout.errors import NotFound
from turnout.fleet.model_rules import EngineKind, Model, ServerPart
from turnout.fleet.replica_rules import ReplicaId
from turnout.worker.direct_access import DirectAccess
from turnout.worker.replica_owner import InFlight, ReplicaOwner
from turnout.worker.replica_set import ReplicaSet

R1 = ReplicaId("r1")
OPS = st.lists(st.sampled_from(["enter", "leave", "stop", "start", "turn", "turn"]), max_size=60)


class CountedReplica:
    """A replica without an engine, in a set of its own: it counts, and says whether it takes requests."""

    id = R1
    model = Model("m", EngineKind.COMMAND, "", server=ServerPart(command=("x", "{port}")))

    def __init__(self) -> None:
        self.takes = True
        self.busy = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def direct_launch(self) -> Launch | None:
        return Launch((), {}, 20_000) if self.takes else None

    def count_direct(self) -> InFlight:
        self.busy += 1
        self.idle.clear()
        return InFlight(cast(ReplicaOwner, self), "")

    def apply(self, event: object) -> None:
        self.busy -= 1
        if not self.busy:
            self.idle.set()

    def all(self) -> "list[CountedReplica]":
        return [self]

    def find(self, replica: str) -> "CountedReplica":
        if replica != R1:
            raise NotFound(replica)
        return self


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_REPORT_S", 0.0)


async def play(ops: list[str]) -> int:
    replica = CountedReplica()
    access = DirectAccess(cast(ReplicaSet, replica))
    session = DirectSession()
    in_flight, stops = list[DirectRoute](), 0
    access.announce()

    async def stop() -> None:
        nonlocal stops
        replica.takes = False
        access.announce()
        await access.wait_acknowledged()
        await replica.idle.wait()
        assert not session.busy, "it is stopped with a request inside"
        assert R1 not in session.routes, "a request may still come"
        stops += 1

    ours, theirs = socket.socketpair()
    ends = [
        asyncio.create_task(access.serve(*await asyncio.open_unix_connection(sock=theirs))),
        asyncio.create_task(session.serve(*await asyncio.open_unix_connection(sock=ours))),
    ]
    stopping: asyncio.Task[None] | None = None
    for op in [*ops, "stop", *["leave"] * len(ops)]:
        route = session.routes.get(R1)
        if op == "enter" and route is not None:
            route.enter()
            in_flight.append(route)
        elif op == "leave" and in_flight:
            in_flight.pop().leave()
        elif op == "stop" and stopping is None:
            stopping = asyncio.create_task(stop())
        elif op == "start" and stopping is not None and stopping.done():
            await stopping
            stopping, replica.takes = None, True
            access.announce()
        await asyncio.sleep(0)
    assert stopping is not None
    await asyncio.wait_for(stopping, 20)
    for end in ends:
        end.cancel()
    await asyncio.gather(*ends, return_exceptions=True)
    assert replica.busy == 0
    return stops


@settings(max_examples=200)
@given(OPS)
def test_no_engine_is_stopped_with_a_request_inside(ops: list[str]) -> None:
    assert asyncio.run(play(ops)) >= 1
