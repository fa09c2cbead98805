"""Draws clips with the experts, many at once: the denoising loop of WanPipeline on batches, for checks in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler
from transformers import UMT5EncoderModel

from training import words
from training.fit_experts import PaddedCross, embed, empty_ids, prepare
from training.recipe import BOUNDARY, SHIFT
from training.whole import WholeVae


def scheduler(shift: float = SHIFT) -> UniPCMultistepScheduler:
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction",
        use_flow_sigmas=True,
        flow_shift=shift,
        num_train_timesteps=1000,
        solver_order=2,
    )


@dataclass(frozen=True, slots=True)
class Sampler:
    """Two experts meeting at the boundary, or one for the whole way."""

    vae: AutoencoderKLWan
    text: UMT5EncoderModel
    high: WanTransformer3DModel
    low: WanTransformer3DModel | None
    mean: torch.Tensor  # [16]
    std: torch.Tensor

    @torch.no_grad()
    def latents(
        self,
        prompts: list[str],
        frames: int,
        side: int,
        steps: int,
        guidance: float,
        shift: float,
        seed: int,
        first: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normalized latents [N, 16, t, h, w]; `first` [N, 16, 1, h, w] is kept as the first frame."""
        device, count = self.mean.device, len(prompts)
        cross = PaddedCross(device)
        for expert in (self.high, self.low):
            if expert is not None:
                prepare(expert, cross)
        states = embed(
            self.text, torch.cat([words.encode(prompts).long().to(device), empty_ids(count, device)])
        )
        plan = scheduler(shift)
        plan.set_timesteps(steps, device=device)
        generator = torch.Generator("cpu").manual_seed(seed)
        shape = (count, 16, (frames - 1) // 4 + 1, side // 8, side // 8)
        x = torch.randn(shape, generator=generator).to(device)
        for t in plan.timesteps:
            expert = self.high if self.low is None or t >= BOUNDARY * 1000 else self.low
            model_in = x if first is None else torch.cat([first, x[:, :, 1:]], dim=2)
            timestep = t.expand(2 * count).float()
            if self.low is None:
                tokens = shape[2] * shape[3] * shape[4] // 4
                timestep = timestep[:, None].repeat(1, tokens)
                if first is not None:
                    timestep[:, : tokens // shape[2]] = 0
            speed = expert(
                hidden_states=torch.cat([model_in, model_in]),
                timestep=timestep,
                encoder_hidden_states=states,
                return_dict=False,
            )[0]
            said, empty = speed.float().chunk(2)
            x = plan.step(empty + guidance * (said - empty), t, x, return_dict=False)[0]
        return x if first is None else torch.cat([first, x[:, :, 1:]], dim=2)

    @torch.no_grad()
    def decode(self, latents: torch.Tensor, batch: int = 32) -> torch.Tensor:
        """Frames [N, T, 3, H, W] in 0..1."""
        z = latents.transpose(1, 2) * self.std.view(-1, 1, 1) + self.mean.view(-1, 1, 1)
        whole = WholeVae(self.vae)
        return torch.cat([(whole.decode(part) / 2 + 0.5).clamp(0, 1) for part in z.split(batch)])

    @torch.no_grad()
    def first_latents(self, frames: torch.Tensor) -> torch.Tensor:
        """Normalized latents [N, 16, 1, h, w] of single pictures [N, 3, H, W] in 0..1."""
        mean, _ = WholeVae(self.vae).encode(frames.unsqueeze(1) * 2 - 1)
        return ((mean - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)).transpose(1, 2)
