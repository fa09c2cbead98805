# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Attention in fp8, in plain PyTorch, and the steps that have it. Lossy, and off unless asked for.

What is rounded is chosen so that little is lost, and what is taken off changes nothing before it is rounded:

- The mean of the values over all tokens is added again afterwards, because the weights of a query sum to one. A GPU's sums of
  fp8 products drop low bits, and with a mean in them that is what the result would consist of (20 to 50 % error).
- The mean of the keys moves all scores of a query alike.
- Queries and keys are rotated alike, which keeps their products and spreads a channel with large numbers over all.

`attend` is the twin of `triton_attention`: CPUs and tests use it. It rounds in the same places, but sums exactly.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F

from turnout.engines.wan.block_ops import FP8, FP8_MAX

EXACT_ENDS = 0.1
"""The share of a clip's steps at its beginning, and again at its end, that keep exact attention, rounded up: the first decide
what the clip shows and the last its detail. Six clips of the tiny model were at least 37 dB from the exact ones with it, 33 dB with
half of it, 29 dB without, and no better with twice of it; xDiT saw artefacts of Wan2.2 without, and keeps as much."""
_SMALLEST_BOUND = 1e-8
# The narrowest head of FlashAttention 3; rotating needs a power of two besides.
_NARROWEST = 64
# FlashAttention 3 shifts the largest weight of a row to this, so that small ones keep their bits.
_LARGEST_WEIGHT = 256.0


@dataclass(frozen=True, slots=True)
class Heads8:
    """Queries, keys or values in fp8 [batch, tokens, heads, padded width], with a scale a head [batch, heads]."""

    values: torch.Tensor
    scales: torch.Tensor

    def exact(self) -> torch.Tensor:
        return self.values.float() * self.scales[:, None, :, None]


def is_exact_step(step: int, steps: int) -> bool:
    """Whether a step of a clip with fp8 attention has the exact one."""
    kept = math.ceil(EXACT_ENDS * steps)
    return step < kept or step >= steps - kept


def padded_width(head_width: int) -> int:
    """How wide the heads are while they are in fp8; the channels beyond `head_width` are zero."""
    return max(_NARROWEST, 1 << (head_width - 1).bit_length())


@cache
def signs(width: int, device: torch.device) -> torch.Tensor:
    """A Hadamard matrix. Divided by the root of `width` it is a rotation."""
    made = torch.ones(1, 1)
    while len(made) < width:
        made = torch.cat([torch.cat([made, made], 1), torch.cat([made, -made], 1)])
    return made.to(device)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Heads as wide as they are padded, turned."""
    width = padded_width(x.shape[-1])
    return F.pad(x, (0, width - x.shape[-1])) @ signs(width, x.device).to(x.dtype) * width**-0.5


def rounded(x: torch.Tensor, bounds: torch.Tensor) -> Heads8:
    """Padded heads in fp8. `bounds` [batch, heads] are lengths that no token's vector exceeds, and so none of its numbers: a bound
    that is too large by ten costs nothing, since fp8 has an exponent."""
    scales = bounds.clamp_min(_SMALLEST_BOUND) / FP8_MAX
    return Heads8((x / scales[:, None, :, None]).to(FP8), scales)


def queries8(q: torch.Tensor) -> Heads8:
    return rounded(rotated(q.float()), _longest(q.float()))


def keys8(k: torch.Tensor) -> Heads8:
    k = k.float()
    mean = k.mean(1, keepdim=True)
    return rounded(rotated(k - mean), _longest(k) + mean[:, 0].norm(dim=-1))


def values8(v: torch.Tensor) -> tuple[Heads8, torch.Tensor]:
    """And their mean [batch, 1, heads, width]."""
    v = v.float()
    mean = v.mean(1, keepdim=True)
    width = padded_width(v.shape[-1])
    centred = F.pad(v - mean, (0, width - v.shape[-1]))
    return rounded(centred, _longest(v) + mean[:, 0].norm(dim=-1)), mean


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As FlashAttention 3 computes it in fp8, head by head: the weights of all pairs of tokens take much memory, and a head alone
    has the same bits as among others."""
    heads = (tuple(each[:, :, n : n + 1].contiguous() for each in (q, k, v)) for n in range(q.shape[2]))
    return torch.cat([seen_in_fp8(queries8(q).exact(), keys8(k).exact(), v) for q, k, v in heads], 2)


def seen_in_fp8(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """What one head's queries see, with weights and values in fp8; queries and keys come rounded, and as wide as they like."""
    values, mean = values8(v)
    scores = q[:, :, 0] @ k[:, :, 0].transpose(1, 2) * v.shape[-1] ** -0.5
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    weights8 = (weights * _LARGEST_WEIGHT).to(FP8).float() / _LARGEST_WEIGHT
    seen = weights8 @ values.exact()[:, :, 0] / weights.sum(-1, keepdim=True)
    return (seen[:, :, None, : v.shape[-1]] + mean).to(v.dtype)


def _longest(x: torch.Tensor) -> torch.Tensor:
    """The length of the longest vector of a token, [batch, heads]."""
    return x.norm(dim=-1).amax(1)
