"""All ranks of a gang as one: rank 0 gives a command, every rank carries it out at the same time.

Ranks only obey: a follower receives, does, and waits for the next command. So all ranks leave a task at the
same step, and a cancel is nothing but a command that does not come.
"""

from dataclasses import dataclass

from turnout.domain.tasks import Task, TaskId
from turnout.domain.video import VideoSpec
from turnout.engines.base import EngineError, Frames, Rendering, VideoEngine
from turnout.gang.group import Group
from turnout.gang.pulse import Pulse
from turnout.observe import get_log, name_attempt

log = get_log()


@dataclass(frozen=True, slots=True)
class Job:
    """What to render, and in which attempt at which task: every rank's lines in the log say so."""

    spec: VideoSpec
    task: TaskId
    attempt: int


def job_of(task: Task) -> Job:
    return Job(task.spec, task.id, task.attempt)


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
class Rest:
    """Nothing to do: keeps the followers' wait from timing out."""


@dataclass(frozen=True, slots=True)
class Leave:
    pass


class RankCommander:
    """Rank 0's side. Methods block and are called from one thread, one at a time."""

    def __init__(self, group: Group, engine: VideoEngine, pulse: Pulse) -> None:
        self._group = group
        self._engine = engine
        self._pulse = pulse
        self._rendering: Rendering | None = None

    @property
    def rendering(self) -> Rendering:
        if self._rendering is None:
            raise RuntimeError("no rendering has begun")
        return self._rendering

    def begin(self, job: Job, image: bytes | None) -> None:
        self._tell(Begin(job))
        self._rendering = self._engine.begin(job.spec, image)

    def resume(self, job: Job, checkpoint: bytes) -> None:
        self._tell(Resume(job))
        self._rendering = self._engine.resume(job.spec, checkpoint)

    def advance(self) -> None:
        self._tell(Advance())
        self.rendering.advance()

    def decode(self) -> Frames:
        self._tell(Decode())
        frames = self.rendering.decode()
        if frames is None:
            raise RuntimeError("rank 0 decoded nothing")
        return frames

    def rest(self) -> None:
        self._tell(Rest())

    def leave(self) -> None:
        self._tell(Leave())

    def _tell(self, command: object) -> None:
        self._pulse.moved()
        self._group.tell(command)


def obey(group: Group, engine: VideoEngine, pulse: Pulse) -> None:
    """A follower's whole life, until it is told to leave."""
    rendering: Rendering | None = None
    while True:
        command = group.hear()
        pulse.moved()
        match command:
            case Begin(job) | Resume(job):
                name_attempt(job.task, job.attempt)
                rendering = _follow(engine, command)
            case Advance() if rendering is not None:
                rendering.advance()
            case Decode() if rendering is not None:
                rendering.decode()
            case Rest():
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
    log.info("rank follows", step=rendering.step, of=rendering.of)
    return rendering
