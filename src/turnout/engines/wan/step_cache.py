"""Leaves out steps whose prediction would hardly differ from the last one. Lossy, and off unless asked for.

How much a prediction changes for a change of the latents is measured at each step that is computed; from that the change
since the last computed step is estimated, and once it is above the threshold the next step is computed again. Rank 0 decides and
tells the others: ranks that rounded differently would otherwise wait for each other.
"""

from dataclasses import dataclass, field

import torch

from turnout.engines.checkpoint import Packed

_WARM_UP = 0.15
"""The share of the steps, from the first, that are always computed: the clip's shape is decided there."""


@dataclass
class StepCache:
    """One render's. `mode` is what a prediction depends on beside the latents: another expert's is never used again."""

    threshold: float
    steps: int
    mode: str = ""
    drift: float = 0.0
    rate: float = 0.0
    skipped: int = 0
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def may_skip(self, step: int, mode: str, latents: torch.Tensor) -> bool:
        if not self.threshold or mode != self.mode or not self.rate:
            return False
        if step < _WARM_UP * self.steps or step == self.steps - 1:
            return False
        moved = _size(latents - self.tensors["latents"])
        return self.drift + self.rate * moved / _size(self.tensors["noise"]) < self.threshold

    def reused(self, latents: torch.Tensor) -> torch.Tensor:
        """The last prediction, for a step that is left out."""
        self.drift += self.rate * _size(latents - self.tensors["latents"]) / _size(self.tensors["noise"])
        self.skipped += 1
        self.tensors["latents"] = latents
        return self.tensors["noise"]

    def computed(self, mode: str, latents: torch.Tensor, noise: torch.Tensor) -> None:
        """To be told of every step that was computed."""
        if not self.threshold:
            return
        known = self.tensors if mode == self.mode else {}
        self.rate = 0.0
        if known and self.drift == 0.0:
            moved = _size(latents - known["latents"])
            self.rate = _size(noise - known["noise"]) / moved if moved else 0.0
        elif known:
            # Steps were left out since: the change is over all of them.
            moved = _size(latents - known["base"])
            self.rate = _size(noise - known["noise"]) / moved if moved else 0.0
        self.mode, self.drift = mode, 0.0
        self.tensors = {"latents": latents, "noise": noise, "base": latents}

    def memory(self) -> Packed:
        if not self.threshold:
            return Packed({}, {})
        words = {
            "mode": self.mode,
            "drift": repr(self.drift),
            "rate": repr(self.rate),
            "skipped": str(self.skipped),
        }
        return Packed(dict(self.tensors), words)

    def recall(self, memory: Packed, device: torch.device) -> None:
        if not self.threshold or "mode" not in memory.words:
            return
        self.mode, self.skipped = memory.words["mode"], int(memory.words["skipped"])
        self.drift, self.rate = float(memory.words["drift"]), float(memory.words["rate"])
        self.tensors = {name: tensor.to(device) for name, tensor in memory.tensors.items()}


def _size(x: torch.Tensor) -> float:
    return float(x.abs().mean())
