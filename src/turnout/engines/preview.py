# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What a half-finished clip looks like, without the VAE: a linear map from latent channels to RGB.

A decode takes seconds on a GPU; this takes milliseconds and is good enough to see shapes and colours. The map
belongs to the VAE: `latent_rgb.json` in the weights ({"matrix": C rows of 3, "bias": 3 numbers}, from normalised
latents to 0..1), or fitted at load by least squares on colour fields that the VAE encodes.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from turnout.engines.animation import animation

FILE = "latent_rgb.json"
_FIT_PATTERNS = 12
_FIT_PIXELS = 128


@dataclass(frozen=True, slots=True)
class LatentColours:
    matrix: torch.Tensor
    bias: torch.Tensor

    def webp(self, latents: torch.Tensor, width: int, height: int, frame_ms: int) -> bytes:
        """An animation of latents [1, C, T, h, w], one picture a latent frame."""
        colours = torch.einsum("cthw,cr->thwr", latents[0].float().cpu(), self.matrix) + self.bias
        pixels = colours.clamp(0, 1).mul(255).round().to(torch.uint8).numpy()
        return animation(pixels, width, height, frame_ms)


def read_or_fit(weights: Path, encode: Callable[[torch.Tensor], torch.Tensor]) -> LatentColours:
    """`encode` makes normalised latents of pixels [1, 3, 1, H, W] in -1..1."""
    path = weights / FILE
    if not path.exists():
        return fit(encode)
    stored = json.loads(path.read_text())
    return LatentColours(torch.tensor(stored["matrix"]).float(), torch.tensor(stored["bias"]).float())


def fit(encode: Callable[[torch.Tensor], torch.Tensor]) -> LatentColours:
    """The map that best gives back the colours of smooth random fields, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    rows: list[torch.Tensor] = []
    wanted: list[torch.Tensor] = []
    for grid in torch.arange(_FIT_PATTERNS) % 4 + 2:
        coarse = torch.rand(1, 3, int(grid), int(grid), generator=generator)
        field = torch.nn.functional.interpolate(coarse, _FIT_PIXELS, mode="bilinear", align_corners=True)
        latents = encode(2 * field[:, :, None] - 1).float().cpu()[0, :, 0]
        rows.append(latents.flatten(1).T)
        wanted.append(torch.nn.functional.adaptive_avg_pool2d(field, latents.shape[-1])[0].flatten(1).T)
    known = torch.cat(rows)
    known = torch.cat([known, torch.ones(len(known), 1)], dim=1)
    # gelsd copes with channels that carry nothing, which the default driver does not.
    solution = cast("torch.Tensor", torch.linalg.lstsq(known, torch.cat(wanted), driver="gelsd").solution)
    return LatentColours(solution[:-1].contiguous(), solution[-1].contiguous())
