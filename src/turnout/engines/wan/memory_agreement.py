"""How the ranks of a gang give a clip up together when memory ran out on one of them."""

from collections.abc import Generator
from contextlib import contextmanager

import torch

from turnout.engines.base import RanksLost, Unrenderable
from turnout.engines.wan.wan_model import WanModel
from turnout.tasks.video_rules import VideoSpec


class MemoryAgreement:
    """A rank that sets `ran_out` goes on with nonsense, because the others wait for it, up to the next `agree`."""

    def __init__(self, model: WanModel, spec: VideoSpec) -> None:
        self._model = model
        self._spec = spec
        self.ran_out = False

    def agree(self) -> None:
        """Raises Unrenderable on all ranks if memory ran out on any. Collective."""
        if self._model.layout.least(0 if self.ran_out else 1) == 0:
            raise Unrenderable(self._too_large())

    @contextmanager
    def within(self) -> Generator[None, None, None]:
        """What the plan let pass and does not fit after all fails this task, not the process that renders it."""
        try:
            yield
        except torch.OutOfMemoryError as err:
            # With FSDP the others wait inside a collective, and only a new gang helps them.
            refusal = RanksLost if self._model.layout.parallel.ranks > 1 else Unrenderable
            raise refusal(self._too_large()) from err

    def _too_large(self) -> str:
        """With what should fit where the plan was wrong by up to a quarter."""
        plan, spec = self._model.memory_plan(self._spec.fp8_attention), self._spec
        smaller = plan.instead(spec, plan.needed_bytes(spec.width, spec.height, spec.frames) * 3 // 4)
        return (
            f"{spec.frames} frames of {spec.width}x{spec.height} do not fit into this GPU's memory; {smaller}"
        )
