"""Starts and resumes renders on a resident Wan model."""

import torch

from turnout.engines.base import CheckpointRefused, Unrenderable
from turnout.engines.checkpoint import Packed, pack, spec_digest, unpack
from turnout.engines.wan import inputs as conditioning
from turnout.engines.wan.inputs import Inputs
from turnout.engines.wan.kernel_rules import FP8_ATTENTION_NEEDS
from turnout.engines.wan.rendering import WanRendering
from turnout.engines.wan.solver import Solver
from turnout.engines.wan.step_cache import StepCache
from turnout.engines.wan.wan_model import WanModel
from turnout.tasks.video_rules import VideoSpec


class WanEngine:
    def __init__(self, model: WanModel) -> None:
        self.model = model

    def begin(self, spec: VideoSpec, image: bytes | None) -> WanRendering:
        self._check(spec)
        self.model.release_unused()
        self.model.adapted.use(spec.loras)
        self._check_memory(spec)
        shared = unpack(
            self.model.layout.share(lambda: pack(Packed(self._encode(spec, image).tensors(), {})))
        )
        size = self.model.shape.latent_size(spec.width, spec.height, spec.frames)
        # On the CPU, so that a seed means the same clip on every rank and every kind of device.
        generator = torch.Generator().manual_seed(spec.seed)
        latents = torch.randn((1, self.model.shape.latent_channels, *size), generator=generator)
        return self._rendering(spec, shared, latents, 0, Packed({}, {}), Packed({}, {}))

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> WanRendering:
        self._check(spec)
        self.model.release_unused()
        self.model.adapted.use(spec.loras)
        self._check_memory(spec)
        kept = unpack(self.model.layout.share(lambda: self._checked(spec, checkpoint)))
        latents, step = kept.tensors["latents"], int(kept.words["step"])
        inputs, solver, cache = (_under(part, kept) for part in ("inputs.", "solver.", "cache."))
        return self._rendering(spec, inputs, latents, step, solver, cache)

    def _rendering(
        self, spec: VideoSpec, given: Packed, latents: torch.Tensor, step: int, memory: Packed, kept: Packed
    ) -> WanRendering:
        device = self.model.device
        solver = Solver(self.model.schedule, spec.steps, spec.shift, device, spec.euler)
        solver.recall(memory)
        inputs = Inputs.of(given.tensors, device, self.model.dtype)
        cache = StepCache(spec.step_cache, spec.steps)
        cache.recall(kept, device)
        return WanRendering(self.model, spec, inputs, solver, latents.to(device), step, cache)

    def _check(self, spec: VideoSpec) -> None:
        """Refuse what no rank could render; the same verdict on all, so nobody is left waiting."""
        shape, ulysses = self.model.shape, self.model.layout.parallel.ulysses
        if fault := shape.fault(spec.width, spec.height, spec.frames):
            raise Unrenderable(fault)
        if spec.steps < 1:
            raise Unrenderable(f"steps must be at least 1, not {spec.steps}")
        tokens = shape.tokens(spec.width, spec.height, spec.frames)
        if tokens % ulysses:
            raise Unrenderable(
                f"{tokens} tokens cannot be shared by {ulysses} ranks; try another size or length"
            )
        if spec.fp8_attention and not self.model.layout.least(int(self.model.fp8_attention() is not None)):
            raise Unrenderable(FP8_ATTENTION_NEEDS)

    def _check_memory(self, spec: VideoSpec) -> None:
        """By the rank that has the least to spare: often rank 0, which also holds the text encoder and the VAE. The same
        verdict on all."""
        plan, here = self.model.memory_plan(spec.fp8_attention), self.model.free_bytes()
        if here is not None:
            self.model.memory.choose(plan.needed_bytes(spec.width, spec.height, spec.frames), here)
        free_bytes = self.model.layout.least(self.model.free_bytes())
        if free_bytes is not None and (fault := plan.fault(spec, free_bytes)):
            raise Unrenderable(fault)

    def _encode(self, spec: VideoSpec, image: bytes | None) -> Inputs:
        leader, shape = self.model.leader, self.model.shape
        assert leader is not None
        if image is not None and not shape.takes_image:
            raise Unrenderable("this model makes clips from text alone and takes no image")
        if image is None and (shape.requires_image or spec.image is not None):
            raise Unrenderable("this clip needs a first frame, and none was given")
        return conditioning.encode(spec, image, shape, leader.text, self.model.codec, self.model.dtype)

    def _checked(self, spec: VideoSpec, checkpoint: bytes) -> bytes:
        kept = unpack(checkpoint)
        if kept.words.get("spec") != spec_digest(spec):
            raise CheckpointRefused("the checkpoint was made for another spec")
        if kept.words.get("weights") != self.model.weights_digest:
            raise CheckpointRefused("the checkpoint was made with other weights")
        if not {"latents", "inputs.prompt"} <= kept.tensors.keys() or "step" not in kept.words:
            raise CheckpointRefused("the checkpoint is incomplete")
        return checkpoint


def _under(prefix: str, packed: Packed) -> Packed:
    return Packed(
        {
            name.removeprefix(prefix): tensor
            for name, tensor in packed.tensors.items()
            if name.startswith(prefix)
        },
        {name.removeprefix(prefix): word for name, word in packed.words.items() if name.startswith(prefix)},
    )
