"""A video engine that renders no further than a test lets it, for scenes in which it does not matter what is drawn.

It draws as the template does, on any number of ranks: a gang of it takes a third of the CPU of a Wan gang, and a task stays at
one step for as long as a test needs it there. Ranks import this file, so it imports little of the tests.
"""

import torch.distributed as dist

from tests.held_model import Gate
from turnout.engines.base import EngineSetup
from turnout.engines.template import TemplateEngine, TemplateRendering
from turnout.tasks.video_rules import VideoSpec


class HeldEngine:
    """Ranks step together, as those of a real engine do: one that is stopped stops the others."""

    def __init__(self, setup: EngineSetup) -> None:
        self._gate = Gate(setup.weights)
        self._ranks = setup.parallel.ranks
        self._drawing = TemplateEngine(EngineSetup(setup.weights))

    def begin(self, spec: VideoSpec, image: bytes | None) -> "HeldRendering":
        return HeldRendering(self._drawing.begin(spec, image), self._gate, self._ranks)

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> "HeldRendering":
        told = [checkpoint]  # the others have none
        if self._ranks > 1:
            dist.broadcast_object_list(told)
        return HeldRendering(self._drawing.resume(spec, told[0]), self._gate, self._ranks)


class HeldRendering:
    def __init__(self, drawn: TemplateRendering, gate: Gate, ranks: int) -> None:
        self._drawn = drawn
        self._gate = gate
        self._ranks = ranks
        self.snapshot, self.preview, self.decode = drawn.snapshot, drawn.preview, drawn.decode

    @property
    def step(self) -> int:
        return self._drawn.step

    @property
    def of(self) -> int:
        return self._drawn.of

    def advance(self) -> None:
        self._gate.wait(self.step)
        if self._ranks > 1:
            dist.barrier()
        self._drawn.advance()
