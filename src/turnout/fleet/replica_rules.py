"""A replica: one resident copy of a model, an engine server or a gang. Pure.

The manager alone decides that a replica exists, where, and in which state it should be (`want`); its worker says in which
state it is (`phase`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model, Needs

ReplicaId = NewType("ReplicaId", str)


class Phase(StrEnum):
    """What a worker reports of a replica. Whether it is busy is a count, not a phase."""

    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    STOPPING = "stopping"
    GONE = "gone"
    FAILED = "failed"


class Want(StrEnum):
    """What the manager wants of a replica."""

    READY = "ready"
    ASLEEP = "asleep"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine server tells of itself; None is what it does not tell. `kv_cache_ratio` is the part of its KV cache that is in
    use; `prefix_tokens` of prompts were looked up in its prefix cache since it started, and `prefix_hit_tokens` were there. It works on
    `running` requests and holds `waiting` more in its own queue."""

    kv_cache_ratio: float | None = None
    prefix_tokens: float | None = None
    prefix_hit_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica as its worker sees it, of which model and on which GPUs. `address` is where its engine listens on that machine ("host:port");
    `busy` counts requests under way; `detail` says why it failed, or how far it has loaded, in words for a user. `refused`: its worker does not
    follow the order, which says nothing of the model. `figures` are for those who watch: nothing is decided by them."""

    id: ReplicaId
    phase: Phase
    address: str | None = None
    busy: int = 0
    detail: str = ""
    model: str = ""
    gpus: tuple[int, ...] = ()
    refused: bool = False
    figures: EngineFigures | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    """A replica that gets no new requests any more; once it has none left, it is to be `then`.

    `room_for` names the model that it makes room for. A closing replica may be opened again. One that is to sleep stays
    closing until it does.
    """

    since: float
    then: Want
    reason: str
    room_for: str | None = None


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy that the manager decided on. `gpus` are the indices it was given; `spec` is the model as it was
    then and `needs` what was promised (a later change of the model changes neither).

    `ordered` is the version of its worker's orders that first said `want`: what a worker reports before it has
    seen that version says nothing about it. `heard` is whether the worker ever reported it.
    """

    id: ReplicaId
    model: str
    worker: WorkerId
    gpus: tuple[int, ...]
    needs: Needs
    want: Want
    phase: Phase
    created_at: float
    phase_since: float
    used_at: float
    spec: Model
    busy: int = 0
    detail: str = ""
    address: str | None = None
    ordered: int = 0
    ordered_at: float = 0.0
    ready_at: float | None = None
    heard: bool = False
    closing: Closing | None = None

    @property
    def asleep(self) -> bool:
        """Asleep as ordered: only then is its GPU memory free for others."""
        return self.want is Want.ASLEEP and self.phase is Phase.SLEEPING

    @property
    def coming(self) -> bool:
        """On its way to ready: starting, or waking."""
        return self.want is Want.READY and self.phase in (Phase.STARTING, Phase.SLEEPING)

    @property
    def open(self) -> bool:
        """Takes requests, or will."""
        return self.want is Want.READY and self.closing is None and self.phase in _OPEN

    @property
    def leaving(self) -> bool:
        """Its memory will be free when it has gone, or some of it when it sleeps: closed, or told to go."""
        return self.want is Want.GONE or self.closing is not None

    @property
    def to_sleep(self) -> bool:
        """Whether it will be asleep, and is not yet."""
        return self.closing is not None and self.closing.then is Want.ASLEEP


_OPEN = frozenset({Phase.STARTING, Phase.READY, Phase.SLEEPING})


@dataclass(frozen=True, slots=True)
class ReplicaOrder:
    """One replica that a worker should have, and how. What is not ordered should be gone. A `closing` one takes no
    new work, and finishes what it has."""

    replica: ReplicaId
    model: Model
    gpus: tuple[int, ...]
    want: Want
    closing: bool = False
