"""The actor that a rank lives in: binds the meeting place, connects the rank to its leader, runs it.

It decides nothing. The rank's work comes from outside as a function; its methods run on threads of their own, so
that it can be drained while it works.
"""

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import ray as _ray

from turnout.fleet.hosts.ray.heartbeats import HeartbeatAddress

ray = cast("Any", _ray)


@dataclass(frozen=True, slots=True)
class RankAddress:
    """Where a rank's process is, and the name of its GPU."""

    node: str
    address: str
    pid: int
    gpu: str


@dataclass(frozen=True, slots=True)
class RankAssignment:
    """Who a rank is in its gang. `listening` is a socket that this process has bound, for rank 0."""

    rank: int
    ranks: int
    rendezvous: str
    node: str
    address: str
    listening: int | None = None


Work = Callable[[RankAssignment, int, Callable[[Callable[[], None]], None]], int]
"""The life of a rank, to its exit code: what it is, where it writes signs of life, and how it hears of a drain."""

GpuName = Callable[[], str]
"""The name of the GPU that this process was given."""


class RankHost:
    def __init__(self, work: Work, gpu_name: GpuName) -> None:
        self._work = work
        self._gpu_name = gpu_name
        self._meeting: socket.socket | None = None
        self._drained = threading.Event()
        self._on_drain: Callable[[], None] | None = None

    def place(self) -> RankAddress:
        context = ray.get_runtime_context()
        address = ray.util.get_node_ip_address()
        return RankAddress(context.get_node_id(), address, os.getpid(), self._gpu_name())

    def listen(self) -> str:
        """Binds the gang's meeting place on this node's own address, at a port that is free."""
        address = self.place().address
        self._meeting = socket.create_server((address, 0), backlog=128)
        return f"tcp://{address}:{self._meeting.getsockname()[1]}"

    def run(self, rank: int, ranks: int, rendezvous: str, signs_to: HeartbeatAddress) -> int:
        """Returns its exit code when the rank has left in peace."""
        place = self.place()
        # The store closes the socket that it is given, so it gets one of its own.
        listening = None if self._meeting is None else os.dup(self._meeting.fileno())
        with signs_to.connect() as signs:
            return self._work(
                RankAssignment(rank, ranks, rendezvous, place.node, place.address, listening),
                signs.fileno(),
                self._hear_drain,
            )

    def drain(self) -> None:
        self._drained.set()
        if self._on_drain is not None:
            self._on_drain()

    def _hear_drain(self, act: Callable[[], None]) -> None:
        self._on_drain = act
        if self._drained.is_set():
            act()
