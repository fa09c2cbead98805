"""When to checkpoint, when to show a preview, and how long it will still take. Pure."""

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class StepPace:
    """How fast this attempt goes. The first step is often slow (warm-up), so later ones outweigh it."""

    step_s: float | None = None
    decode_s: float = 0.0

    def after(self, step_s: float) -> "StepPace":
        blended = step_s if self.step_s is None else 0.5 * self.step_s + 0.5 * step_s
        return StepPace(blended, self.decode_s)

    def eta_s(self, step: int, of: int) -> float | None:
        if self.step_s is None:
            return None
        return round((of - step) * self.step_s + self.decode_s, 3)
