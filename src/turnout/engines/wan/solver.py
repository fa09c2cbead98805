"""UniPC with a memory that can be put away: a multistep solver looks back, so a resume needs what it saw."""

from collections.abc import Mapping
from typing import Any

import torch

from turnout.engines.base import CheckpointRefused
from turnout.engines.checkpoint import Packed
from turnout.engines.wan.library_classes import UniPCMultistepScheduler

_COUNTERS = ("lower_order_nums", "this_order", "_step_index")
_HISTORIES = ("model_outputs", "timestep_list")


class Solver:
    """One render's schedule. The same arithmetic on every rank keeps their latents the same."""

    def __init__(
        self,
        config: Mapping[str, Any],
        steps: int,
        shift: float,
        device: torch.device,
        euler: bool = False,
    ) -> None:
        self._device = device
        # Of the first order and without its corrector, UniPC takes the steps of Euler's method.
        plain = {"solver_order": 1, "disable_corrector": list(range(steps))} if euler else {}
        self._inner = UniPCMultistepScheduler.from_config({**config, **plain}, flow_shift=shift)
        self._inner.set_timesteps(steps, device=device)
        self._inner.set_begin_index(0)
        self.timesteps: torch.Tensor = self._inner.timesteps
        self.train_timesteps = int(self._inner.config.num_train_timesteps)

    def step(self, noise: torch.Tensor, t: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        return self._inner.step(noise, t, latents, return_dict=False)[0]

    @property
    def estimate(self) -> torch.Tensor | None:
        """The clean latents as last predicted; None before the first step."""
        return self._inner.model_outputs[-1]

    def memory(self) -> Packed:
        """All that the next step depends on, beside the latents."""
        tensors: dict[str, torch.Tensor] = {}
        for history in _HISTORIES:
            for place, seen in enumerate(getattr(self._inner, history)):
                if seen is not None:
                    tensors[f"{history}.{place}"] = torch.as_tensor(seen)
        if self._inner.last_sample is not None:
            tensors["last_sample"] = self._inner.last_sample
        counters = {name: getattr(self._inner, name, None) for name in _COUNTERS}
        return Packed(tensors, {name: str(n) for name, n in counters.items() if n is not None})

    def recall(self, memory: Packed) -> None:
        """Stand where `memory` was taken."""
        try:
            for history in _HISTORIES:
                places = range(len(getattr(self._inner, history)))
                setattr(
                    self._inner, history, [self._tensor(memory, f"{history}.{place}") for place in places]
                )
            self._inner.last_sample = self._tensor(memory, "last_sample")
            for name in _COUNTERS:
                if name in memory.words:
                    setattr(self._inner, name, int(memory.words[name]))
        except ValueError as err:
            raise CheckpointRefused(f"the checkpoint's solver state is damaged: {err}") from err

    def _tensor(self, memory: Packed, name: str) -> torch.Tensor | None:
        return memory.tensors[name].to(self._device) if name in memory.tensors else None
