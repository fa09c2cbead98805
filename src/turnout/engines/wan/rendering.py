"""The denoise loop, one step at a time: two experts, guidance, UniPC."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from turnout.engines.base import Frame, Frames
from turnout.engines.checkpoint import Packed, pack, spec_digest
from turnout.engines.sequence import Attend
from turnout.engines.wan.bands import Rows
from turnout.engines.wan.fp8_attention import is_exact_step
from turnout.engines.wan.inputs import Inputs
from turnout.engines.wan.memory_agreement import MemoryAgreement
from turnout.engines.wan.solver import Solver
from turnout.engines.wan.step_cache import StepCache
from turnout.engines.wan.transformer import StepTimes, TextContext, WanTransformer
from turnout.engines.wan.wan_model import WanModel
from turnout.tasks.video_rules import VideoSpec


class WanRendering:
    """One clip in the making. Every rank holds the whole latents, so any checkpoint is rank 0's own copy."""

    def __init__(
        self,
        model: WanModel,
        spec: VideoSpec,
        inputs: Inputs,
        solver: Solver,
        latents: torch.Tensor,
        step: int,
        cache: StepCache,
    ) -> None:
        self._model = model
        self._spec = spec
        self._inputs = inputs
        self._solver = solver
        self._latents = latents
        self._step = step
        self._cache = cache
        self._moving = self._mask()
        self._seeing: WanTransformer | None = None
        self._contexts: dict[int, TextContext] = {}
        self._memory = MemoryAgreement(model, spec)
        self._attention8 = model.fp8_attention() if spec.fp8_attention else None

    @property
    def step(self) -> int:
        return self._step

    @property
    def of(self) -> int:
        return len(self._solver.timesteps)

    @property
    def latents(self) -> torch.Tensor:
        """The clip so far, with a given first frame in its place."""
        return self._keep_first(self._latents)

    def advance(self) -> None:
        if self._step >= self.of:
            raise RuntimeError(f"all {self.of} steps are done")
        with self._memory.within():
            self._advance()
        self._step += 1

    @torch.no_grad()
    def _advance(self) -> None:
        t = self._solver.timesteps[self._step]
        expert, guidance = self._stage(t)
        self._model.memory.use(self._model.experts.index(expert))
        if self._step >= self._spec.guided_share * self.of:
            guidance = 1.0
        noise = self._noise(expert, guidance, t)
        self._memory.agree()
        self._latents = self._solver.step(noise, t, self._latents)
        if self._model.device.type == "cuda":
            # A step is reported when it is done, not when it is queued.
            torch.cuda.synchronize(self._model.device)

    def _noise(self, expert: WanTransformer, guidance: float, t: torch.Tensor) -> torch.Tensor:
        """The prediction for this step, or the last one again."""
        if not self._cache.threshold:
            return self._predict(expert, guidance, self._seen(), self._times(t))
        mode = f"{self._model.experts.index(expert)} {guidance}"
        skips = self._model.layout.share(
            lambda: b"1" if self._cache.may_skip(self._step, mode, self._latents) else b"0"
        )
        if skips == b"1":
            return self._cache.reused(self._latents)
        noise = self._predict(expert, guidance, self._seen(), self._times(t))
        self._cache.computed(mode, self._latents, noise)
        return noise

    def snapshot(self) -> bytes:
        memory, cache = self._solver.memory(), self._cache.memory()
        return pack(
            Packed(
                {
                    "latents": self._latents,
                    **{f"inputs.{name}": tensor for name, tensor in self._inputs.tensors().items()},
                    **{f"solver.{name}": tensor for name, tensor in memory.tensors.items()},
                    **{f"cache.{name}": tensor for name, tensor in cache.tensors.items()},
                },
                {
                    "spec": spec_digest(self._spec),
                    "weights": self._model.weights_digest,
                    "seed": str(self._spec.seed),
                    "step": str(self._step),
                    **{f"solver.{name}": word for name, word in memory.words.items()},
                    **{f"cache.{name}": word for name, word in cache.words.items()},
                },
            )
        )

    def preview(self) -> bytes:
        leader = self._model.leader
        assert leader is not None, "only rank 0 can make a preview"
        # The solver's guess at the clean clip shows shapes long before the noise in the latents is gone.
        estimate = self._solver.estimate
        latents = self.latents if estimate is None else self._keep_first(estimate)
        frame_ms = round(1000 * self._model.shape.scale_temporal / self._spec.fps)
        return leader.colours.webp(latents, self._spec.width, self._spec.height, frame_ms)

    def decode(self) -> "Iterable[Frame] | None":
        self._contexts = {}
        frames = self._frames()
        if self._model.layout.leads:
            return frames
        for _ in frames:
            pass
        return None

    def _frames(self) -> Iterator[Frame]:
        """Ranks decode a band of rows each; rank 0 puts them together."""
        layout, scale = self._model.layout, self._model.shape.scale_spatial
        bands = Rows(0, self._latents.shape[-2]).split(self._model.decoding_ranks)
        heights = [len(band) * scale for band in bands]
        mine = bands[layout.rank] if layout.rank < len(bands) else Rows(0, 0)
        with self._memory.within():
            for part in self._band(mine):
                yield from layout.stack_rows(part, heights)
            self._memory.agree()

    def _band(self, rows: Rows) -> Iterator[Frames]:
        """This rank's rows. After memory ran out they are black, because rank 0 waits for them."""
        if not len(rows):
            return
        shape, done = self._model.shape, 0
        try:
            for part in self._model.codec.decode(self.latents, rows):
                yield part
                done += 1
        except torch.OutOfMemoryError:
            if self._model.layout.parallel.ranks == 1:
                raise
            self._memory.ran_out = True
        height, width = len(rows) * shape.scale_spatial, self._spec.width
        for place in range(done, self._latents.shape[2]):
            yield np.zeros((shape.scale_temporal if place else 1, height, width, 3), dtype=np.uint8)

    def _stage(self, t: torch.Tensor) -> tuple[WanTransformer, float]:
        low, high = self._spec.guidance
        boundary = self._model.shape.boundary_ratio
        if boundary is None or t >= boundary * self._solver.train_timesteps:
            return self._model.experts[0], high
        return self._model.experts[1], low

    def _predict(
        self, expert: WanTransformer, guidance: float, seen: torch.Tensor, times: StepTimes
    ) -> torch.Tensor:
        layout, negative = self._model.layout, self._inputs.negative

        def forward(prompt: torch.Tensor) -> torch.Tensor:
            try:
                return expert(seen, times, self._context(expert, prompt), self._attend())
            except torch.OutOfMemoryError:
                if layout.parallel.ranks == 1 or layout.parallel.fsdp:
                    raise
                self._memory.ran_out = True
                return torch.zeros_like(self._latents)

        if guidance <= 1 or negative is None:
            # Also with CFG parallel: both halves compute the same, which keeps FSDP's collectives in step.
            return forward(self._inputs.prompt)
        if layout.parallel.cfg == 1:
            with_prompt, without = forward(self._inputs.prompt), forward(negative)
        else:
            with_prompt, without = layout.pair(
                forward(negative if layout.unconditional else self._inputs.prompt)
            )
        return without + guidance * (with_prompt - without)

    def _attend(self) -> Attend | None:
        """Another attention than the exact one, where this step has it."""
        if self._attention8 is None or is_exact_step(self._step, self.of):
            return None
        return self._attention8.attend

    def _seen(self) -> torch.Tensor:
        """What the transformer looks at: the latents, and the first frame where one was given."""
        if self._model.shape.kind == "i2v":
            assert self._inputs.image is not None
            return torch.cat([self._latents, self._inputs.image], dim=1).to(self._model.dtype)
        return self._keep_first(self._latents).to(self._model.dtype)

    def _times(self, t: torch.Tensor) -> StepTimes:
        if not self._model.shape.expand_timesteps:
            return StepTimes(t.expand(1))
        _, p_h, p_w = self._model.shape.patch
        moving = self._moving[0, 0, :, ::p_h, ::p_w].flatten()
        return StepTimes(torch.stack([torch.zeros_like(t), t]), moving.long())

    def _context(self, expert: WanTransformer, prompt: torch.Tensor) -> TextContext:
        """The prompt as the expert at work sees it; what the other one kept of it is let go."""
        if self._seeing is not expert:
            self._seeing, self._contexts = expert, {}
        return self._contexts.setdefault(id(prompt), TextContext(prompt))

    def _mask(self) -> torch.Tensor:
        """1 where the clip is being made, 0 where the first frame was given (ti2v)."""
        moving = torch.ones(1, 1, *self._latents.shape[2:], device=self._latents.device)
        if self._model.shape.kind == "ti2v" and self._inputs.image is not None:
            moving[:, :, 0] = 0
        return moving

    def _keep_first(self, latents: torch.Tensor) -> torch.Tensor:
        if self._model.shape.kind != "ti2v" or self._inputs.image is None:
            return latents
        return (1 - self._moving) * self._inputs.image + self._moving * latents
