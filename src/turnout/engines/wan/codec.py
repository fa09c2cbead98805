"""Pixels to latents and back, with the normalisation that the transformer expects."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from turnout.engines.base import Frames
from turnout.engines.wan.bands import BandDecoder, Rows
from turnout.engines.wan.memory_rules import TILE_ABOVE_PIXELS


class Codec:
    """The VAE. Latents outside are normalised; what the VAE itself sees stays in here."""

    def __init__(self, vae: Any, tile_above_pixels: int = TILE_ABOVE_PIXELS) -> None:
        self._vae = vae
        # The halves may differ: on a GPU, decoding is in bf16 while encoding stays in fp32.
        self._encode_dtype: torch.dtype = next(vae.encoder.parameters()).dtype
        self._decode_dtype: torch.dtype = next(vae.decoder.parameters()).dtype
        # diffusers' own property imports torch's compiler before it answers: 0.8 s in each rank.
        self._device: torch.device = next(vae.parameters()).device
        self._tile_above_pixels = tile_above_pixels
        self._decoder = BandDecoder(vae.decoder)
        config = vae.config
        self._mean = torch.tensor(config.latents_mean).view(1, config.z_dim, 1, 1, 1).to(self._device)
        # Kept as a reciprocal, and divided by on the way back, because the reference pipeline rounds that way.
        self._scale = (1.0 / torch.tensor(config.latents_std)).view(1, config.z_dim, 1, 1, 1).to(self._device)
        self._ratio = int(config.scale_factor_spatial)

    @torch.no_grad()
    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Latents of pixels [1, 3, T, H, W] in -1..1."""
        if pixels.shape[-2] * pixels.shape[-1] > self._tile_above_pixels:
            self._vae.enable_tiling()
        else:
            self._vae.disable_tiling()
        latents: torch.Tensor = self._vae.encode(
            pixels.to(self._device, self._encode_dtype)
        ).latent_dist.mode()
        return (latents.float() - self._mean) * self._scale

    def decode(self, latents: torch.Tensor, rows: Rows | None = None) -> Iterator[Frames]:
        """The clip of latents [1, C, T, H, W], or what comes of these rows of them; the frames of one latent frame at a time.

        What is too large to be decoded at once is decoded in bands. All but the last are whole before the first frame is.
        """
        rows = rows or Rows(0, latents.shape[-2])
        pixels = len(rows) * latents.shape[-1] * self._ratio**2
        *first, last = rows.split(max(1, math.ceil(pixels / self._tile_above_pixels)))
        bands = [list(self._band(latents, band)) for band in first]
        for place, part in enumerate(self._band(latents, last)):
            yield np.concatenate([*(band[place] for band in bands), part], axis=1) if bands else part

    @torch.no_grad()
    def _band(self, latents: torch.Tensor, rows: Rows) -> Iterator[Frames]:
        inner = latents.to(self._device, torch.float32) / self._scale + self._mean
        inner = self._vae.post_quant_conv(inner.to(self._decode_dtype))
        cache: defaultdict[int, Any] = defaultdict(lambda: None)
        copied: Callable[[], Frames] | None = None
        for place in range(inner.shape[2]):
            pixels = self._decoder(inner[:, :, place : place + 1], rows, cache, place == 0)
            copying = _copy(self._bytes(pixels[0]))
            # The one before is waited for only now: the GPU has work meanwhile.
            if copied is not None:
                yield copied()
            copied = copying
        assert copied is not None, "a clip has at least one frame"
        yield copied()

    def _bytes(self, pixels: torch.Tensor) -> torch.Tensor:
        """[channels, time, height, width] in -1..1 to frames. On the device: a quarter of the copy."""
        if patch := self._vae.config.patch_size:
            # Each pixel holds a square of the finished picture.
            squares = pixels.reshape(-1, patch, patch, *pixels.shape[1:]).permute(0, 3, 4, 2, 5, 1)
            pixels = squares.flatten(4, 5).flatten(2, 3)
        return (
            (pixels.float() / 2 + 0.5)
            .clamp(0, 1)
            .mul(255)
            .round()
            .to(torch.uint8)
            .permute(1, 2, 3, 0)
            .contiguous()
        )


def _copy(frames: torch.Tensor) -> Callable[[], Frames]:
    """Starts to copy to the host; what it returns waits for the end of it."""
    if not frames.is_cuda:
        return frames.numpy
    host = torch.empty(frames.shape, dtype=frames.dtype, pin_memory=True)
    host.copy_(frames, non_blocking=True)
    done = torch.cuda.Event(blocking=True)
    done.record()

    def wait() -> Frames:
        done.synchronize()
        return host.numpy()

    return wait
