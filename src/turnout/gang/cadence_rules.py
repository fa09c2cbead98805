"""When to checkpoint, when to show a preview, and how long it will still take. Pure."""

from dataclasses import dataclass, replace

from turnout.tasks.pace_rules import ExpectedTimes
from turnout.tasks.task_rules import Stage
from turnout.tasks.video_rules import VideoSpec


@dataclass(frozen=True, slots=True)
class Cadence:
    """A checkpoint every `checkpoint_steps` steps or `checkpoint_s` seconds, whichever comes first."""

    checkpoint_steps: int
    checkpoint_s: float
    preview_steps: int

    def checkpoint_due(self, step: int, of: int, last_step: int, since_s: float) -> bool:
        return last_step < step < of and (
            step - last_step >= self.checkpoint_steps or since_s >= self.checkpoint_s
        )

    def preview_due(self, step: int, of: int) -> bool:
        return 0 < step < of and step % self.preview_steps == 0


_PRIOR_STEPS = 3  # what is expected of a step counts as so many that were seen
_UNKNOWN = ExpectedTimes(encode_s=0.0, guided_step_s=2.0, step_s=1.0, finish_s=2.0)  # in forwards


@dataclass(frozen=True, slots=True)
class AttemptPace:
    """How long an attempt will still take: by what was expected, and the longer it runs the more by its own steps. Of the first
    video that a model makes nothing is expected; then its end is taken to last as long as a step.

    The first step is often slow, because kernels are chosen; it counts only until there is another."""

    spec: VideoSpec
    times: ExpectedTimes | None = None
    loading_s: float = 0.0
    steps: int = 0
    took_s: float = 0.0
    should_take_s: float = 0.0

    def after(self, step: int, took_s: float) -> "AttemptPace":
        """`step` was just done, counted from 1."""
        times = self.times or _UNKNOWN
        should_take_s = times.steps_s(self.spec, step - 1) - times.steps_s(self.spec, step)
        after = replace(self, steps=self.steps + 1)
        if self.steps == 0 and self.times is not None:
            return after
        if self.steps == 1:
            after = replace(after, took_s=0.0, should_take_s=0.0)
        return replace(after, took_s=after.took_s + took_s, should_take_s=after.should_take_s + should_take_s)

    def eta_s(self, stage: Stage, step: int, in_stage_s: float = 0.0) -> float | None:
        """`in_stage_s`: so long has it been in this stage; uploading counts from when decoding began."""
        if self.times is None and not self.should_take_s:
            return None
        times = self.times or _UNKNOWN
        factor = self._factor(times)
        finish_s = times.finish_s if self.times is not None else factor * times.finish_s
        match stage:
            case Stage.LOADING:
                left = max(0.0, self.loading_s - in_stage_s) + times.render_s(self.spec)
            case Stage.ENCODING:
                left = times.render_s(self.spec)
            case Stage.DENOISING:
                left = factor * times.steps_s(self.spec, step) + finish_s
            case Stage.DECODING | Stage.UPLOADING:
                left = max(0.0, finish_s - in_stage_s)
        return round(left, 3)

    def _factor(self, times: ExpectedTimes) -> float:
        """How much longer its steps take than they should."""
        prior_s = 0.0 if self.times is None else _PRIOR_STEPS * times.steps_s(self.spec) / self.spec.steps
        whole_s = prior_s + self.should_take_s
        return (prior_s + self.took_s) / whole_s if whole_s else 1.0
