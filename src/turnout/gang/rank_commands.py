"""Commands to the ranks of a gang: rank 0 sends one, and every rank carries it out at the same time.

A follower receives a command, carries it out and waits for the next. So all ranks leave a task at the same step: a task
is dropped when no further command comes for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from turnout.engines.base import EngineError, Frame, RanksLost, Rendering, VideoEngine
from turnout.gang.group import Group
from turnout.gang.heartbeat import RankHeartbeat
from turnout.tasks.gang_messages import ClaimedTask
from turnout.tasks.task_rules import TaskId
from turnout.tasks.video_rules import VideoSpec
from turnout.telemetry.log import get_log, name_attempt
from turnout.telemetry.trace_rules import trace_field

log = get_log()


@dataclass(frozen=True, slots=True)
class Job:
    """What to render, and in which attempt at which task: every rank's lines in the log say so."""

    spec: VideoSpec
    task: TaskId
    attempt: int
    trace: str | None = None


def job_of(task: ClaimedTask) -> Job:
    return Job(task.spec, task.id, task.attempt, trace_field(task.traceparent).get("trace"))


@dataclass(frozen=True, slots=True)
class Begin:
    job: Job


@dataclass(frozen=True, slots=True)
class Resume:
    job: Job


@dataclass(frozen=True, slots=True)
class Advance:
    pass


@dataclass(frozen=True, slots=True)
class Decode:
    pass


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Nothing to do: keeps the followers' wait from timing out."""


@dataclass(frozen=True, slots=True)
class Leave:
    pass


class RankCommander:
    """Rank 0's side. Methods block and are called from one thread, one at a time."""

    def __init__(self, group: Group, engine: VideoEngine, heartbeat: RankHeartbeat) -> None:
        self._group = group
        self._engine = engine
        self._heartbeat = heartbeat
        self._rendering: Rendering | None = None

    @property
    def rendering(self) -> Rendering:
        if self._rendering is None:
            raise RuntimeError("no rendering has begun")
        return self._rendering

    def begin(self, job: Job, image: bytes | None) -> None:
        self._send(Begin(job))
        self._rendering = self._engine.begin(job.spec, image)

    def resume(self, job: Job, checkpoint: bytes) -> None:
        self._send(Resume(job))
        self._rendering = self._engine.resume(job.spec, checkpoint)

    def advance(self) -> None:
        self._send(Advance())
        self.rendering.advance()

    def decode(self) -> Iterable[Frame]:
        """The other ranks may be waiting for frames to be taken."""
        self._send(Decode())
        frames = self.rendering.decode()
        if frames is None:
            raise RuntimeError("rank 0 decoded nothing")
        return frames

    def keep_alive(self) -> None:
        self._send(KeepAlive())

    def leave(self) -> None:
        self._send(Leave())

    def _send(self, command: object) -> None:
        self._heartbeat.moved()
        self._group.send(command)


def obey(group: Group, engine: VideoEngine, heartbeat: RankHeartbeat) -> None:
    """A follower's whole life, until it is told to leave."""
    rendering: Rendering | None = None
    while True:
        command = group.receive()
        heartbeat.moved()
        match command:
            case Begin(job) | Resume(job):
                name_attempt(job.task, job.attempt, job.trace)
                rendering = _follow(engine, command)
            case Advance() | Decode() if rendering is not None:
                rendering = _go_on(rendering, command)
            case KeepAlive():
                continue
            case Leave():
                return
            case _:
                raise RuntimeError(f"cannot obey {command!r} now")


def _follow(engine: VideoEngine, command: Begin | Resume) -> Rendering | None:
    spec = command.job.spec
    try:
        rendering = engine.begin(spec, None) if isinstance(command, Begin) else engine.resume(spec, b"")
    except EngineError as err:
        log.info("task refused", error=str(err))
        return None  # all ranks refuse alike; rank 0 tells the user why
    log.info("rank began the task", step=rendering.step, of=rendering.of)
    return rendering


def _go_on(rendering: Rendering, command: Advance | Decode) -> Rendering | None:
    try:
        if isinstance(command, Advance):
            rendering.advance()
        else:
            rendering.decode()
    except RanksLost:
        raise
    except EngineError as err:
        log.info("task given up", error=str(err))
        return None  # by all ranks alike, as above
    return rendering
