# pyright: reportUnknownMemberType=false
"""LTX-Video from diffusers' files, as a second family behind the same contract: diffusers' own transformer, text to clip.

With `cfg: 2` two ranks compute the two halves of guidance. `shift` 1 means the model's own, which depends on the clip's size.
"""

import math
from typing import Any, cast

import diffusers
import numpy as np
import torch
import transformers

from turnout.engines.base import CheckpointRefused, EngineSetup, Frames, Unrenderable
from turnout.engines.checkpoint import Packed, pack, spec_digest, unpack, weights_digest
from turnout.engines.preview import LatentColours, read_or_fit
from turnout.engines.rank_layout import join_ranks
from turnout.tasks.video_rules import VideoSpec

_TEXT_TOKENS = 128
# Later LTX decoders expect a little noise, and to be told how much: the published settings.
_DECODE_TIME, _DECODE_NOISE = 0.05, 0.025
# The published schedule: how far it is shifted grows with the number of tokens.
_SHIFTS = {"base_image_seq_len": 256, "max_image_seq_len": 4096, "base_shift": 0.5, "max_shift": 1.15}


class LtxEngine:
    """Every rank holds the transformer; rank 0 also the text encoder and the VAE."""

    def __init__(self, setup: EngineSetup) -> None:
        if setup.parallel.ulysses > 1 or setup.parallel.fsdp or setup.fp8 or setup.fp8_attention:
            raise ValueError("ltx takes cfg: 2, but neither ulysses nor fsdp, fp8 nor fp8_attention")
        cast("Any", transformers).utils.logging.disable_progress_bar()
        cast("Any", diffusers).utils.logging.disable_progress_bar()
        self.layout = join_ranks(setup.parallel, torch.device(setup.device))
        self.device = torch.device(setup.device)
        self.dtype: torch.dtype = getattr(torch, setup.dtype)
        parts: dict[str, Any] = {"transformer": cast("Any", diffusers).LTXVideoTransformer3DModel}
        if self.layout.leads:
            parts |= {"vae": cast("Any", diffusers).AutoencoderKLLTXVideo}
            parts |= {"text_encoder": cast("Any", transformers).T5EncoderModel}
        # Part by part: a rank that tells nothing for long is taken for dead.
        sizes = [sum(file.stat().st_size for file in (setup.weights / part).glob("*")) for part in parts]
        for place, (name, kind) in enumerate(parts.items()):
            parts[name] = kind.from_pretrained(setup.weights / name, dtype=self.dtype, local_files_only=True)
            if setup.progress is not None:
                setup.progress(sum(sizes[: place + 1]), sum(sizes))
        absent = {} if self.layout.leads else {"vae": None, "text_encoder": None, "tokenizer": None}
        pipe: Any = cast("Any", diffusers).LTXPipeline.from_pretrained(
            setup.weights, local_files_only=True, **parts, **absent
        )
        self.pipe = pipe.to(self.device)
        self.digest = weights_digest(setup.weights)
        self.colours: LatentColours | None = None
        if self.layout.leads:
            self.colours = read_or_fit(setup.weights, self._encode)

    @torch.no_grad()
    def begin(self, spec: VideoSpec, image: bytes | None) -> "LtxRendering":
        by_space, by_time = self.pipe.vae_spatial_compression_ratio, self.pipe.vae_temporal_compression_ratio
        if spec.width % by_space or spec.height % by_space or (spec.frames - 1) % by_time:
            raise Unrenderable(f"sides must be multiples of {by_space}, frames {by_time}n+1")
        if spec.fp8_attention:
            raise Unrenderable("ltx has no fp8 attention")
        given = unpack(self.layout.share(lambda: self._inputs(spec, image)))
        size = (spec.frames - 1) // by_time + 1, spec.height // by_space, spec.width // by_space
        channels = self.pipe.transformer.config.in_channels
        # On the CPU, so that a seed means the same clip on every device.
        noise = torch.randn((1, channels, *size), generator=torch.Generator().manual_seed(spec.seed))
        # A resumed render has them in this order in memory, and a GPU's products round by it.
        latents = self.pipe._pack_latents(noise).contiguous()
        return LtxRendering(self, spec, given, latents, 0)

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> "LtxRendering":
        kept = unpack(self.layout.share(lambda: self._checked(spec, checkpoint)))
        return LtxRendering(self, spec, kept, kept.tensors["latents"], int(kept.words["step"]))

    def _inputs(self, spec: VideoSpec, image: bytes | None) -> bytes:
        if image is not None:
            raise Unrenderable("this model makes clips from text alone and takes no image")
        texts = {"prompt": spec.prompt, "negative": spec.negative_prompt}
        tensors: dict[str, torch.Tensor] = {}
        for name, text in texts.items():
            seen, mask = self.pipe._get_t5_prompt_embeds(
                text, max_sequence_length=_TEXT_TOKENS, device=self.device, dtype=self.dtype
            )
            tensors |= {name: seen, f"{name}_mask": mask}
        return pack(Packed(tensors, {}))

    def _checked(self, spec: VideoSpec, checkpoint: bytes) -> bytes:
        words = unpack(checkpoint).words
        if (words.get("spec"), words.get("weights")) != (spec_digest(spec), self.digest):
            raise CheckpointRefused("the checkpoint was made for another spec or other weights")
        return checkpoint

    def _encode(self, pixels: torch.Tensor) -> torch.Tensor:
        vae = self.pipe.vae
        with torch.no_grad():
            latents = vae.encode(pixels.to(self.device, self.dtype)).latent_dist.mode()
        return self.pipe._normalize_latents(
            latents, vae.latents_mean, vae.latents_std, vae.config.scaling_factor
        )


class LtxRendering:
    def __init__(
        self, engine: LtxEngine, spec: VideoSpec, given: Packed, latents: torch.Tensor, step: int
    ) -> None:
        self._engine = engine
        self._spec = spec
        self._given = {name: tensor.to(engine.device) for name, tensor in given.tensors.items()}
        self._given.pop("latents", None)
        self._latents = latents.to(engine.device)
        pipe = engine.pipe
        space, time = pipe.vae_spatial_compression_ratio, pipe.vae_temporal_compression_ratio
        self._grid = (spec.frames - 1) // time + 1, spec.height // space, spec.width // space
        self._rope_scale = (time / spec.fps, space, space)
        self._scheduler: Any = type(pipe.scheduler).from_config(pipe.scheduler.config)
        sigmas = np.linspace(1.0, 1 / spec.steps, spec.steps)
        self._scheduler.set_timesteps(sigmas=sigmas, mu=self._shift(), device=engine.device)
        self._scheduler.set_begin_index(step)
        self._step = step

    @property
    def step(self) -> int:
        return self._step

    @property
    def of(self) -> int:
        return len(self._scheduler.timesteps)

    @torch.no_grad()
    def advance(self) -> None:
        t = self._scheduler.timesteps[self._step]
        layout, guidance = self._engine.layout, self._spec.guidance[1]
        if guidance <= 1 or self._step >= self._spec.guided_share * self.of:
            noise = self._predict("prompt", t)
        else:
            if layout.parallel.cfg == 1:
                with_prompt, without = self._predict("prompt", t), self._predict("negative", t)
            else:
                with_prompt, without = layout.pair(
                    self._predict("negative" if layout.unconditional else "prompt", t)
                )
            noise = without + guidance * (with_prompt - without)
        self._latents = self._scheduler.step(noise, t, self._latents, return_dict=False)[0]
        self._step += 1

    def snapshot(self) -> bytes:
        words = {"spec": spec_digest(self._spec), "weights": self._engine.digest, "step": str(self._step)}
        return pack(Packed({"latents": self._latents, **self._given}, words))

    def preview(self) -> bytes:
        colours = self._engine.colours
        assert colours is not None, "only rank 0 can make a preview"
        frame_ms = round(1000 * self._engine.pipe.vae_temporal_compression_ratio / self._spec.fps)
        return colours.webp(self._unpacked(), self._spec.width, self._spec.height, frame_ms)

    @torch.no_grad()
    def decode(self) -> "Frames | None":
        if not self._engine.layout.leads:
            return None
        pipe, vae = self._engine.pipe, self._engine.pipe.vae
        latents = pipe._denormalize_latents(
            self._unpacked(), vae.latents_mean, vae.latents_std, vae.config.scaling_factor
        )
        time = None
        if vae.config.timestep_conditioning:
            noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(self._spec.seed))
            latents = (1 - _DECODE_NOISE) * latents + _DECODE_NOISE * noise.to(latents)
            time = torch.tensor([_DECODE_TIME], device=latents.device, dtype=vae.dtype)
        pixels: torch.Tensor = vae.decode(latents.to(vae.dtype), time, return_dict=False)[0]
        bytes_ = (pixels[0].float() / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8)
        return np.ascontiguousarray(bytes_.permute(1, 2, 3, 0).cpu().numpy())

    def _predict(self, text: str, t: torch.Tensor) -> torch.Tensor:
        frames, height, width = self._grid
        seen: torch.Tensor = self._engine.pipe.transformer(
            hidden_states=self._latents.to(self._engine.dtype),
            encoder_hidden_states=self._given[text],
            encoder_attention_mask=self._given[f"{text}_mask"],
            timestep=t.expand(1),
            num_frames=frames,
            height=height,
            width=width,
            rope_interpolation_scale=self._rope_scale,
            return_dict=False,
        )[0]
        return seen.float()

    def _unpacked(self) -> torch.Tensor:
        return self._engine.pipe._unpack_latents(self._latents, *self._grid)

    def _shift(self) -> float:
        """As the scheduler takes it: the logarithm of how far noise levels are moved up."""
        if self._spec.shift != 1:
            return math.log(self._spec.shift)
        config = self._scheduler.config
        few, many, least, most = (config.get(name, usual) for name, usual in _SHIFTS.items())
        return least + (most - least) * (math.prod(self._grid) - few) / (many - few)
