"""Pixels to latents and back, with the normalisation that the transformer expects."""

from typing import Any

import numpy as np
import torch

from turnout.engines.base import Frames
from turnout.engines.wan.memory_plan import TILE_ABOVE_PIXELS


class Codec:
    """The VAE. Latents outside are normalised; what the VAE itself sees stays in here."""

    def __init__(self, vae: Any, tile_above_pixels: int = TILE_ABOVE_PIXELS) -> None:
        self._vae = vae
        # The halves may differ: on a GPU, decoding is in bf16 while encoding stays in fp32.
        self._encode_dtype: torch.dtype = next(vae.encoder.parameters()).dtype
        self._decode_dtype: torch.dtype = next(vae.decoder.parameters()).dtype
        self._tile_above_pixels = tile_above_pixels
        config = vae.config
        self._mean = torch.tensor(config.latents_mean).view(1, config.z_dim, 1, 1, 1).to(vae.device)
        # Kept as a reciprocal, and divided by on the way back, because the reference pipeline rounds that way.
        self._scale = (1.0 / torch.tensor(config.latents_std)).view(1, config.z_dim, 1, 1, 1).to(vae.device)

    @torch.no_grad()
    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Latents of pixels [1, 3, T, H, W] in -1..1."""
        self._choose_tiling(pixels.shape[-2] * pixels.shape[-1])
        latents: torch.Tensor = self._vae.encode(
            pixels.to(self._vae.device, self._encode_dtype)
        ).latent_dist.mode()
        return (latents.float() - self._mean) * self._scale

    @torch.no_grad()
    def decode(self, latents: torch.Tensor) -> Frames:
        """The clip of latents [1, C, T, H, W]."""
        ratio = int(self._vae.config.scale_factor_spatial)
        self._choose_tiling(latents.shape[-2] * latents.shape[-1] * ratio * ratio)
        inner = latents.to(self._vae.device, torch.float32) / self._scale + self._mean
        pixels: torch.Tensor = self._vae.decode(inner.to(self._decode_dtype), return_dict=False)[0]
        # To bytes on the device: a quarter of the copy.
        bytes_ = (pixels[0].float() / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8)
        return np.ascontiguousarray(bytes_.permute(1, 2, 3, 0).cpu().numpy())

    def _choose_tiling(self, pixels: int) -> None:
        if pixels > self._tile_above_pixels:
            self._vae.enable_tiling()
        else:
            self._vae.disable_tiling()
