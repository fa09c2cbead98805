"""A video engine to start from: copy this file, and put your model where the colours are made.

It paints a field of colours that moves to the right and gets clearer with every step. It needs no weights and no torch, and
passes the whole of `contract.py` on one rank: `python -m turnout.engines.contract turnout.engines.template:TemplateEngine .`
"""

import json
from dataclasses import asdict

import numpy as np

from turnout.engines.animation import animation
from turnout.engines.base import CheckpointRefused, EngineSetup, Frames, Unrenderable
from turnout.tasks.video_rules import VideoSpec


class TemplateEngine:
    def __init__(self, setup: EngineSetup) -> None:
        # Load the weights here, on setup.device, and tell setup.progress about it.
        if setup.parallel.ranks != 1:
            raise ValueError("this engine renders on one rank")

    def begin(self, spec: VideoSpec, image: bytes | None) -> "TemplateRendering":
        if image is not None:
            raise Unrenderable("this engine draws from words alone")
        noise = np.random.default_rng(spec.seed).random((spec.frames, spec.height, spec.width, 3))
        return TemplateRendering(spec, noise, 0)

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> "TemplateRendering":
        head, _, body = checkpoint.partition(b"\n")
        try:
            said = json.loads(head)
            state = np.frombuffer(body).reshape(spec.frames, spec.height, spec.width, 3)
            made_for, step = said["spec"], int(said["step"])
        except (ValueError, KeyError, TypeError) as err:
            raise CheckpointRefused(f"the checkpoint cannot be read: {err}") from err
        if made_for != _words(spec):
            raise CheckpointRefused("the checkpoint was made for another spec")
        return TemplateRendering(spec, state, step)


class TemplateRendering:
    def __init__(self, spec: VideoSpec, state: np.ndarray, step: int) -> None:
        self._spec = spec
        self._state = state
        self.step = step
        self.of = spec.steps

    def advance(self) -> None:
        left = self.of - self.step + 1  # one more, so that some of the noise stays and seeds differ
        self._state = self._state + (self._target() - self._state) / left
        self.step += 1

    def snapshot(self) -> bytes:
        # Everything that the next step depends on. Reading it must run no code: no pickle.
        return (
            json.dumps({"spec": _words(self._spec), "step": self.step}).encode()
            + b"\n"
            + self._state.tobytes()
        )

    def preview(self) -> bytes:
        return animation(self._pixels(), self._spec.width, self._spec.height, round(1000 / self._spec.fps))

    def decode(self) -> Frames:
        return self._pixels()

    def _target(self) -> np.ndarray:
        spec = self._spec
        t, y, x = np.meshgrid(
            *(np.linspace(0, 1, n) for n in (spec.frames, spec.height, spec.width)), indexing="ij"
        )
        hue = sum(spec.prompt.encode()) / 255
        return np.stack([(x - t + hue) % 1, y, (t + hue) % 1], axis=-1)

    def _pixels(self) -> Frames:
        return (self._state.clip(0, 1) * 255).round().astype(np.uint8)


def _words(spec: VideoSpec) -> str:
    return json.dumps(asdict(spec), sort_keys=True)
