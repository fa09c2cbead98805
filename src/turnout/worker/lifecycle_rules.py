"""The state of one engine on a worker, and the events that change it. Pure.

        ┌──────────────── wake ───────────────┐
        ▼                                     │
    starting ──answers──▶ ready ──sleep──▶ sleeping
        │                   │                 │
        └───── GONE is wanted, or a fault ────┘
                            ▼
                        stopping ──exited──▶ gone | failed (there was a fault)

An engine that exits in any other phase has failed. A fault (it never answered, or answers no more) first stops the
engine: it counts as failed only when its process is gone, and with it the memory.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from turnout.fleet.replica_rules import Phase, Want
from turnout.tenants.gpu_time_rules import GpuState


@dataclass(frozen=True, slots=True)
class EngineState:
    """`falling_asleep`: a ready engine is being put to sleep; it takes no requests and still holds its memory. `busy` counts
    requests in flight, or a gang's tasks. `fault` is why it counts as failed once it has exited; `refused`: this machine does
    not run it, so nothing was tried."""

    want: Want = Want.READY
    phase: Phase = Phase.STARTING
    can_sleep: bool = False
    busy: int = 0
    falling_asleep: bool = False
    fault: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Launched:
    """Its process was started."""

    can_sleep: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    want: Want


class Notice(Enum):
    """Events without content."""

    SERVING = auto()  # it answers: it has loaded, or is awake again
    ASLEEP = auto()
    ADMITTED = auto()  # a request
    DIRECT = auto()  # a request that a gateway sent directly to the engine
    ENDED = auto()  # a request has ended
    STAYED_AWAKE = auto()  # it was not put to sleep: a request is in flight


@dataclass(frozen=True, slots=True)
class Holds:
    """A gang takes its tasks by itself; it has so many now."""

    count: int


@dataclass(frozen=True, slots=True)
class Faulted:
    detail: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process and all that it started are gone. `detail` says why, in case nobody asked for it."""

    detail: str


@dataclass(frozen=True, slots=True)
class OrderRefused:
    """This machine does not follow the order; nothing was started."""

    detail: str


Event = Launched | Wanted | Notice | Holds | Faulted | Exited | OrderRefused


class Act(Enum):
    """What the owner must do next. One runs at a time, and STOP cancels any other."""

    SLEEP = auto()
    WAKE = auto()
    STOP = auto()


LIVE_PHASES = frozenset({Phase.STARTING, Phase.READY, Phase.SLEEPING})
ENDED_PHASES = frozenset({Phase.GONE, Phase.FAILED})


def admits(state: EngineState) -> bool:
    """Whether a request is admitted. An engine that should sleep admits no more, or it would never be idle."""
    return state.phase is Phase.READY and not state.falling_asleep and not _should_sleep(state)


def held_as(state: EngineState) -> GpuState | None:
    """What its GPUs do; None when it holds none any more."""
    match state.phase:
        case Phase.STARTING:
            return GpuState.LOADING
        case Phase.SLEEPING:
            return GpuState.ASLEEP
        case Phase.READY | Phase.STOPPING:
            return GpuState.BUSY if state.busy else GpuState.IDLE
        case Phase.GONE | Phase.FAILED:
            return None


def evolve(state: EngineState, event: Event) -> tuple[EngineState, Act | None]:
    """The state after `event`, and what to do. A late or repeated event changes nothing."""
    return _settle(_absorb(state, event), before=state)


def _absorb(state: EngineState, event: Event) -> EngineState:
    match event:
        case Launched(can_sleep):
            return replace(state, can_sleep=can_sleep)
        case Wanted(want) if state.phase in LIVE_PHASES:
            return replace(state, want=want)
        case Notice.SERVING if state.phase is Phase.STARTING:
            return replace(state, phase=Phase.READY)
        case Notice.ASLEEP if state.phase is Phase.READY and state.falling_asleep:
            return replace(state, phase=Phase.SLEEPING, falling_asleep=False)
        case Notice.ADMITTED if admits(state):
            return replace(state, busy=state.busy + 1)
        case Notice.DIRECT if state.phase not in ENDED_PHASES:
            return replace(state, busy=state.busy + 1)
        case Notice.STAYED_AWAKE if state.busy:
            return replace(state, falling_asleep=False)
        case Notice.ENDED if state.busy:
            return replace(state, busy=state.busy - 1)
        case Holds(count) if state.phase not in ENDED_PHASES:
            return replace(state, busy=count)
        case Faulted(detail) if state.phase in LIVE_PHASES:
            return replace(state, fault=detail)
        case Exited(detail) if state.phase in LIVE_PHASES:
            return replace(state, phase=Phase.FAILED, falling_asleep=False, fault=state.fault or detail)
        case OrderRefused(detail) if state.phase is Phase.STARTING:
            return replace(state, phase=Phase.FAILED, fault=detail, refused=True)
        case Exited() if state.phase is Phase.STOPPING:
            return replace(state, phase=Phase.FAILED if state.fault else Phase.GONE)
        case _:
            return state


def _settle(state: EngineState, before: EngineState) -> tuple[EngineState, Act | None]:
    """Takes the step that is due, if any."""
    if state == before or state.phase not in LIVE_PHASES:
        return state, None
    if state.want is Want.GONE or state.fault:
        return replace(state, phase=Phase.STOPPING, falling_asleep=False), Act.STOP
    if state.phase is Phase.READY and _should_sleep(state) and state.busy == 0 and not state.falling_asleep:
        return replace(state, falling_asleep=True), Act.SLEEP
    if state.phase is Phase.SLEEPING and state.want is Want.READY:
        return replace(state, phase=Phase.STARTING), Act.WAKE
    return state, None


def _should_sleep(state: EngineState) -> bool:
    return state.want is Want.ASLEEP and state.can_sleep
