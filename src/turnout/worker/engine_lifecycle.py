"""The states of one engine on a worker, and what moves it from one to the next. Pure.

        ┌──────────────── wake ───────────────┐
        ▼                                     │
    starting ──answers──▶ ready ──sleep──▶ sleeping
        │                   │                 │
        └───── gone is wanted, or a fault ────┘
                            ▼
                        stopping ──exited──▶ gone | failed (there was a fault)

An engine that exits in any other phase has failed. A fault (it never answered, it fell silent) first stops the
engine: failed is said only when its process, and so its memory, is gone.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from turnout.domain.serving import Phase, Want


@dataclass(frozen=True, slots=True)
class Life:
    """`moving` says that a ready engine is being put to sleep: it takes no requests, and still holds its memory.
    `fault` is why it will have failed once it is gone."""

    want: Want = Want.READY
    phase: Phase = Phase.STARTING
    can_sleep: bool = False
    busy: int = 0
    moving: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Launched:
    """Its process was started."""

    can_sleep: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    want: Want


class Told(Enum):
    """Events without a content of their own."""

    SERVING = auto()  # it answers: it has loaded, or woken
    ASLEEP = auto()
    ENTERED = auto()  # a request was let in
    FOUND = auto()  # a request that went straight to the engine is there already
    LEFT = auto()  # a request has ended
    STAYED = auto()  # it was not put to sleep: a request was found there


@dataclass(frozen=True, slots=True)
class Holds:
    """It took its work by itself, and has so many tasks now."""

    count: int


@dataclass(frozen=True, slots=True)
class Faulted:
    detail: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process is gone, with all it started; `detail` says why, for when nobody asked it to."""

    detail: str


Event = Launched | Wanted | Told | Holds | Faulted | Exited


class Act(Enum):
    """What its owner must do next; at most one is under way, and STOP ends any other."""

    SLEEP = auto()
    WAKE = auto()
    STOP = auto()


LIVE = frozenset({Phase.STARTING, Phase.READY, Phase.SLEEPING})
OVER = frozenset({Phase.GONE, Phase.FAILED})


def admits(life: Life) -> bool:
    """Whether a request may enter. One that is about to sleep takes no more, or it would never get there."""
    return life.phase is Phase.READY and not life.moving and not _should_sleep(life)


def evolve(life: Life, event: Event) -> tuple[Life, Act | None]:
    """The life after `event`, and what to do. A late or repeated event changes nothing."""
    return _settle(_hear(life, event), before=life)


def _hear(life: Life, event: Event) -> Life:
    match event:
        case Launched(can_sleep):
            return replace(life, can_sleep=can_sleep)
        case Wanted(want) if life.phase in LIVE:
            return replace(life, want=want)
        case Told.SERVING if life.phase is Phase.STARTING:
            return replace(life, phase=Phase.READY)
        case Told.ASLEEP if life.phase is Phase.READY and life.moving:
            return replace(life, phase=Phase.SLEEPING, moving=False)
        case Told.ENTERED if admits(life):
            return replace(life, busy=life.busy + 1)
        case Told.FOUND if life.phase not in OVER:
            return replace(life, busy=life.busy + 1)
        case Told.STAYED if life.busy:
            return replace(life, moving=False)
        case Told.LEFT if life.busy:
            return replace(life, busy=life.busy - 1)
        case Holds(count) if life.phase not in OVER:
            return replace(life, busy=count)
        case Faulted(detail) if life.phase in LIVE:
            return replace(life, fault=detail)
        case Exited(detail) if life.phase in LIVE:
            return replace(life, phase=Phase.FAILED, moving=False, fault=life.fault or detail)
        case Exited() if life.phase is Phase.STOPPING:
            return replace(life, phase=Phase.FAILED if life.fault else Phase.GONE)
        case _:
            return life


def _settle(life: Life, before: Life) -> tuple[Life, Act | None]:
    """Takes the step that is due, if any."""
    if life == before or life.phase not in LIVE:
        return life, None
    if life.want is Want.GONE or life.fault:
        return replace(life, phase=Phase.STOPPING, moving=False), Act.STOP
    if life.phase is Phase.READY and _should_sleep(life) and life.busy == 0 and not life.moving:
        return replace(life, moving=True), Act.SLEEP
    if life.phase is Phase.SLEEPING and life.want is Want.READY:
        return replace(life, phase=Phase.STARTING), Act.WAKE
    return life, None


def _should_sleep(life: Life) -> bool:
    return life.want is Want.ASLEEP and life.can_sleep
