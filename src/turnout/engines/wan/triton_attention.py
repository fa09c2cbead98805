# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportPrivateImportUsage=false
"""What surrounds FlashAttention 3 in fp8, as Triton kernels for bf16 on a GPU: `fp8_attention` has the twin and the reasons.

Queries, keys and values are read twice, once for their bounds and means and once to be rounded; sums are made in a fixed order,
so that the same inputs give the same bits. Import this module only where Triton is installed.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from turnout.engines.sequence import Attend
from turnout.engines.wan.block_ops import FP8, FP8_MAX
from turnout.engines.wan.fp8_attention import Heads8, padded_width, rotated, signs

_TOKENS = 64
"""That one program of a kernel takes, of one head."""
_SMALLEST_BOUND = 1e-8


def in_fp8(flash3: Callable[..., Any]) -> Attend:
    """Attention by `flash3`, FlashAttention 3's own function, in fp8."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        width, padded = q.shape[-1], padded_width(q.shape[-1])
        queries, (keys, _), (values, mean) = (
            queries8(q),
            centred8(k, rotates=True),
            centred8(v, rotates=False),
        )
        out: Any = flash3(
            queries.values,
            keys.values,
            values.values,
            softmax_scale=width**-0.5,
            q_descale=queries.scales,
            k_descale=keys.scales,
            v_descale=values.scales,
        )
        out = out[0] if isinstance(out, tuple) else out
        seen = out if width == padded else torch.empty_like(q, memory_format=torch.contiguous_format)
        _, tokens, heads, _ = q.shape
        _add_mean_kernel[(triton.cdiv(tokens, _TOKENS), heads)](
            out, mean, seen, tokens, heads, WIDTH=width, PADDED=padded, TOKENS=_TOKENS
        )
        return seen

    return attend


def queries8(q: torch.Tensor) -> Heads8:
    _, longest = _measured(q)
    return _rounded(q, None, longest, rotates=True)


def centred8(x: torch.Tensor, *, rotates: bool) -> tuple[Heads8, torch.Tensor]:
    """Keys or values, and their mean [heads, width]."""
    mean, longest = _measured(x)
    return _rounded(x, mean, longest + mean.norm(dim=-1), rotates), mean


def _measured(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean over all tokens [heads, width], and the length of the longest vector of a token [heads]."""
    batch, tokens, heads, width = x.shape
    assert batch == 1, "a render has a batch of one"
    assert x.stride(3) == 1
    parts, padded = triton.cdiv(tokens, _TOKENS), padded_width(width)
    sums = torch.empty(parts, heads, padded, device=x.device)
    squares = torch.empty(parts, heads, device=x.device)
    _measure_kernel[(parts, heads)](
        x, sums, squares, tokens, heads, x.stride(1), x.stride(2), WIDTH=width, PADDED=padded, TOKENS=_TOKENS
    )
    return sums.sum(0)[:, :width] / tokens, squares.amax(0).sqrt()


def _rounded(x: torch.Tensor, mean: torch.Tensor | None, bounds: torch.Tensor, rotates: bool) -> Heads8:
    _, tokens, heads, width = x.shape
    padded = padded_width(width)
    scales = bounds.clamp_min(_SMALLEST_BOUND) / FP8_MAX
    values = torch.empty(1, tokens, heads, padded, device=x.device, dtype=FP8)
    off = None
    if mean is not None:
        off = rotated(mean) if rotates else torch.nn.functional.pad(mean, (0, padded - width))
    _round_kernel[(triton.cdiv(tokens, _TOKENS), heads)](
        x,
        signs(padded, x.device).bfloat16() if rotates else x,
        x if off is None else off.contiguous(),
        scales,
        values,
        tokens,
        heads,
        x.stride(1),
        x.stride(2),
        padded**-0.5,
        WIDTH=width,
        PADDED=padded,
        TOKENS=_TOKENS,
        ROTATES=rotates,
        CENTRES=off is not None,
    )
    return Heads8(values, scales[None])


@triton.jit
def _measure_kernel(
    x_ptr,
    sums_ptr,
    squares_ptr,
    tokens,
    heads,
    token_stride,
    head_stride,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    TOKENS: tl.constexpr,
):
    part, head = tl.program_id(0), tl.program_id(1)
    token = (part * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
    channel = tl.arange(0, PADDED)
    inside = (token < tokens)[:, None] & (channel < WIDTH)[None, :]
    here = token[:, None] * token_stride + head * head_stride + channel[None, :]
    x = tl.load(x_ptr + here, mask=inside, other=0.0).to(tl.float32)
    place = part * heads + head
    tl.store(sums_ptr + place * PADDED + channel, tl.sum(x, 0))
    tl.store(squares_ptr + place, tl.max(tl.sum(x * x, 1), 0))


@triton.jit
def _round_kernel(
    x_ptr,
    signs_ptr,
    mean_ptr,
    scales_ptr,
    values_ptr,
    tokens,
    heads,
    token_stride,
    head_stride,
    turn_scale,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    TOKENS: tl.constexpr,
    ROTATES: tl.constexpr,
    CENTRES: tl.constexpr,
):
    head = tl.program_id(1)
    token = (tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
    channel = tl.arange(0, PADDED)
    present = (token < tokens)[:, None]
    here = token[:, None] * token_stride + head * head_stride + channel[None, :]
    x = tl.load(x_ptr + here, mask=present & (channel < WIDTH)[None, :], other=0.0)
    if ROTATES:
        # Products with 1 and -1 are exact in bf16, and their sums are made in fp32.
        signs = tl.load(signs_ptr + channel[:, None] * PADDED + channel[None, :])
        y = tl.dot(x, signs) * turn_scale
    else:
        y = x.to(tl.float32)
    if CENTRES:
        y = y - tl.load(mean_ptr + head * PADDED + channel)[None, :]
    y = y / tl.load(scales_ptr + head)
    there = (token[:, None] * heads + head) * PADDED + channel[None, :]
    tl.store(values_ptr + there, y.to(tl.float8e4nv), mask=present)


@triton.jit
def _add_mean_kernel(
    out_ptr,
    mean_ptr,
    seen_ptr,
    tokens,
    heads,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    TOKENS: tl.constexpr,
):
    head = tl.program_id(1)
    token = (tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
    channel = tl.arange(0, PADDED)
    inside = (token < tokens)[:, None] & (channel < WIDTH)[None, :]
    row = token[:, None] * heads + head
    out = tl.load(out_ptr + row * PADDED + channel[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + head * WIDTH + channel, mask=channel < WIDTH, other=0.0)
    tl.store(seen_ptr + row * WIDTH + channel[None, :], (out + mean[None, :]).to(tl.bfloat16), mask=inside)
