"""Bands of rows that a VAE decodes one by one, or on several ranks, to the same bits as the whole picture at once.

The decoder's first layers look at the whole picture (one is an attention over all of it). They run at the latents' size, cost
little, and every band computes them. After them a pixel depends on a few rows above and below: a band takes these along and cuts
off, before each block, what no later layer looks at. Zeros beyond a band's edge reach only rows that are cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

# How far a convolution of three rows looks; all of the decoder's have three, or one.
_REACH = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """From `begin` up to, but not including, `end`."""

    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def times(self, scale: int) -> "Rows":
        return Rows(self.begin * scale, self.end * scale)

    def halved(self) -> "Rows":
        """The rows that are doubled to these and, where they begin or end in the middle of one, a bit more."""
        return Rows(self.begin // 2, -(-self.end // 2))

    def widened(self, by: int, height: int) -> "Rows":
        """These and their neighbours in a picture of that height."""
        return Rows(max(0, self.begin - by), min(height, self.end + by))

    def split(self, parts: int) -> list["Rows"]:
        """In order, as even as can be. Where there are more parts than rows some are empty, never the first."""
        count = len(self)
        edges = [self.begin - (-count * place // parts) for place in range(parts + 1)]
        return [Rows(begin, end) for begin, end in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class BlockReach:
    """What a block of the decoder does to rows: how many convolutions follow each other, and whether rows are doubled."""

    convolutions: int
    doubles: bool


def block_reaches(decoder: Any) -> list[BlockReach]:
    """Of diffusers' Wan decoder, the blocks after its attention."""
    return [
        # Two convolutions in each residual block, one after the rows were doubled.
        BlockReach(
            2 * len(block.resnets),
            bool(getattr(block, "upsamplers", None) or getattr(block, "upsampler", None)),
        )
        for block in decoder.up_blocks
    ]


def rows_needed(blocks: Sequence[BlockReach], rows: Rows, height: int) -> list[Rows]:
    """Before each block, counted as the picture has them there."""
    scales = [2 ** sum(block.doubles for block in blocks[:place]) for place in range(len(blocks) + 1)]
    here = rows.times(scales[-1]).widened(_REACH, height * scales[-1])  # for the last convolution
    needed: list[Rows] = []
    for place, block in reversed(list(enumerate(blocks))):
        if block.doubles:
            here = here.widened(_REACH, height * scales[place + 1]).halved()
        here = here.widened(_REACH * block.convolutions, height * scales[place])
        needed.insert(0, here)
    return needed


class BandDecoder:
    """Diffusers' decoder for one band at a time. The hooks that cut stay in it for good; without a band they do nothing."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._blocks = block_reaches(decoder)
        self._needed: list[Rows] = []
        for place, block in enumerate(decoder.up_blocks):
            block.register_forward_pre_hook(self._cutting(place))

    def __call__(self, latent: torch.Tensor, rows: Rows, cache: Any, first: bool) -> torch.Tensor:
        """Pixels of these rows of one latent frame [1, C, 1, H, W]. What a layer keeps for the next frame is in `cache`."""
        self._needed = rows_needed(self._blocks, rows, latent.shape[-2])
        try:
            out: torch.Tensor = self._decoder(latent, feat_cache=cache, feat_idx=[0], first_chunk=first)
            scale = 2 ** sum(block.doubles for block in self._blocks)
            return _cut(out, self._after(len(self._blocks)), rows.times(scale))
        finally:
            self._needed = []

    def _cutting(self, place: int) -> Any:
        def cut(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
            x = given[0]
            if not self._needed:
                return given
            here = self._after(place) if place else Rows(0, x.shape[-2])
            return _cut(x, here, self._needed[place]), *given[1:]

        return cut

    def _after(self, blocks: int) -> Rows:
        """The rows that come out of the last of so many blocks."""
        return self._needed[blocks - 1].times(2 if self._blocks[blocks - 1].doubles else 1)


def _cut(x: torch.Tensor, here: Rows, wanted: Rows) -> torch.Tensor:
    if here == wanted:
        return x
    return x.narrow(-2, wanted.begin - here.begin, len(wanted)).clone()
