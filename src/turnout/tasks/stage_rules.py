"""The stages of a video's attempts and how long each took, from the task's events: for metrics and traces alike. Pure."""

from dataclasses import dataclass

from turnout.tasks.task_rules import (
    Cancelled,
    Claimed,
    Event,
    Expired,
    Failed,
    Finished,
    Interrupted,
    Progressed,
    Stage,
    Submitted,
)

QUEUED, STEP = "queued", "step"


@dataclass(frozen=True, slots=True)
class StageTime:
    """`stage` is one of Stage, `queued`, or `step` for denoise steps: the last of them was `step`. Reports may be left out,
    so it may be more than one (`steps`). One that is not `whole` was cut by the attempt's end."""

    stage: str
    began: float
    ended: float
    step: int = 0
    steps: int = 1
    whole: bool = True

    @property
    def seconds(self) -> float:
        """Of one step, where it is several."""
        return max(0.0, self.ended - self.began) / self.steps


class StageClock:
    """Follows one task; it may begin in the middle of the story."""

    __slots__ = ("_since", "_stage", "_step")

    def __init__(self) -> None:
        self._stage = ""
        self._since = 0.0
        self._step = 0

    def see(self, event: Event) -> StageTime | None:
        """The stage that ended with this event, or was cut by it."""
        match event:
            case Submitted(at=at):
                return self._enter(QUEUED, at)
            case Claimed(at=at):
                return self._enter(Stage.LOADING, at)
            case Progressed(at=at, stage=Stage.DENOISING, step=step) if self._stage == Stage.DENOISING:
                return self._stepped(at, step)
            case Progressed(at=at, stage=stage, step=step) if stage != self._stage:
                ended = self._enter(stage, at)
                self._step = step
                return ended
            case Interrupted(at=at):
                return self._cut(QUEUED, at)
            case Finished(at=at):
                return self._enter("", at)
            case Failed(at=at) | Cancelled(at=at) | Expired(at=at):
                return self._cut("", at)
            case _:
                return None

    def _enter(self, stage: str, at: float) -> StageTime | None:
        before, since = self._stage, self._since
        self._stage, self._since = stage, at
        return None if before in ("", Stage.DENOISING) else StageTime(before, since, at)

    def _stepped(self, at: float, step: int) -> StageTime | None:
        if step <= self._step:
            return None
        since, steps = self._since, step - self._step
        self._since, self._step = at, step
        return StageTime(STEP, since, at, step, steps)

    def _cut(self, stage: str, at: float) -> StageTime | None:
        before, since = self._stage, self._since
        self._stage, self._since = stage, at
        if not before:
            return None
        if before == Stage.DENOISING:
            return StageTime(STEP, since, at, self._step + 1, whole=False)
        return StageTime(before, since, at, whole=False)
