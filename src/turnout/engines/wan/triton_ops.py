# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportPrivateImportUsage=false
"""The operations of `block_ops` as Triton kernels, for bf16 on a GPU. Each reads and writes its tensors once.

Import this module only where Triton is installed.
"""

import torch
import triton
import triton.language as tl

from turnout.engines.wan.block_ops import EPS, FP8, Activation, Affine, Modulation, Pending, Rows8
from turnout.engines.wan.rotary import Rotation

_FP8_MAX = tl.constexpr(448.0)
_SMALLEST_ROW = tl.constexpr(1e-8)


class TritonOps:
    def __init__(self, quantises: bool = False) -> None:
        self._quantises = quantises

    def add_norm(
        self, x: torch.Tensor, pending: Pending | None, norm: Modulation | Affine
    ) -> tuple[torch.Tensor, Activation]:
        rows, width = x.shape
        gate = None if pending is None else pending.gate
        affine = isinstance(norm, Affine)
        scale = norm.weight if affine else norm.scale.vectors
        shift = norm.bias if affine else norm.shift.vectors
        picks = next((p.rows for p in (gate, None if affine else norm.scale) if p is not None), None)
        summed = x if pending is None else torch.empty_like(x)
        normed = torch.empty_like(x, dtype=FP8 if self._quantises else x.dtype)
        scales = torch.empty(rows, 1, device=x.device) if self._quantises else x
        _add_norm_kernel[(rows,)](
            x,
            x if pending is None else pending.out,
            scale if gate is None else gate.vectors,
            scale,
            shift,
            x if picks is None else picks,
            summed,
            normed,
            scales,
            width,
            0 if gate is None else _row_stride(gate.vectors),
            0 if affine else _row_stride(scale),
            EPS,
            PENDING=pending is not None,
            GATED=gate is not None,
            AFFINE=affine,
            PICKED=picks is not None,
            QUANTISE=self._quantises,
            BLOCK=triton.next_power_of_2(width),
            num_warps=8,
        )
        return summed, Rows8(normed, scales) if self._quantises else normed

    def rms_rotate(
        self, x: torch.Tensor, weights: torch.Tensor, heads: int, rotation: Rotation | None
    ) -> tuple[torch.Tensor, ...]:
        tokens = x.shape[0]
        parts, width = weights.shape
        out = torch.empty(parts, tokens, heads, width // heads, device=x.device, dtype=x.dtype)
        # A pair of bf16 is one 32-bit word. Splitting pairs with Triton's own split and join was nine times slower.
        words, weight_words = x.view(torch.int32), weights.view(torch.int32)
        _rms_rotate_kernel[(tokens, parts)](
            words,
            weight_words,
            words if rotation is None else rotation.cos,
            words if rotation is None else rotation.sin,
            out.view(torch.int32),
            words.stride(0),
            tokens * width // 2,
            EPS,
            PAIRS=width // 2,
            HEAD_PAIRS=width // heads // 2,
            BLOCK=triton.next_power_of_2(width // 2),
            ROTATE=rotation is not None,
            num_warps=4,
        )
        return out.unbind(0)

    def activate(self, x: torch.Tensor) -> Activation:
        return _quantised(x, gelu=False) if self._quantises else x

    def gelu(self, x: torch.Tensor) -> Activation:
        if self._quantises:
            return _quantised(x, gelu=True)
        return torch.nn.functional.gelu(x, approximate="tanh")

    def linear_gelu(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        # In the product's epilogue, where cuBLAS computes the tanh form.
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)


def _row_stride(vectors: torch.Tensor) -> int:
    return 0 if vectors.shape[0] == 1 else vectors.stride(0)


def _quantised(x: torch.Tensor, gelu: bool) -> Rows8:
    rows, width = x.shape
    values = torch.empty(rows, width, device=x.device, dtype=FP8)
    scales = torch.empty(rows, 1, device=x.device)
    block = triton.next_power_of_2(width)
    warps = 8 if block <= 8192 else 16
    _quantise_kernel[(rows,)](x, values, scales, width, x.stride(0), GELU=gelu, BLOCK=block, num_warps=warps)
    return Rows8(values, scales)


@triton.jit
def _add_norm_kernel(
    x_ptr,
    out_ptr,
    gate_ptr,
    scale_ptr,
    shift_ptr,
    picks_ptr,
    summed_ptr,
    normed_ptr,
    scales_ptr,
    width,
    gate_stride,
    norm_stride,
    eps,
    PENDING: tl.constexpr,
    GATED: tl.constexpr,
    AFFINE: tl.constexpr,
    PICKED: tl.constexpr,
    QUANTISE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    here = row * width + column
    pick = tl.load(picks_ptr + row).to(tl.int64) if PICKED else row
    x = tl.load(x_ptr + here, mask=inside, other=0.0).to(tl.float32)
    if PENDING:
        out = tl.load(out_ptr + here, mask=inside, other=0.0).to(tl.float32)
        if GATED:
            out = out * tl.load(gate_ptr + pick * gate_stride + column, mask=inside, other=0.0)
        # Rounded here, so that the norm sees what the next layer adds to.
        rounded = (x + out).to(tl.bfloat16)
        tl.store(summed_ptr + here, rounded, mask=inside)
        x = rounded.to(tl.float32)
    centred = tl.where(inside, x - tl.sum(x, 0) / width, 0.0)
    y = centred * tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
    scale = tl.load(scale_ptr + pick * norm_stride + column, mask=inside, other=0.0)
    shift = tl.load(shift_ptr + pick * norm_stride + column, mask=inside, other=0.0)
    y = y * (scale if AFFINE else 1.0 + scale) + shift
    if QUANTISE:
        y = tl.where(inside, y, 0.0)
        row_scale = tl.maximum(tl.max(tl.abs(y), 0), _SMALLEST_ROW) / _FP8_MAX
        tl.store(scales_ptr + row, row_scale)
        tl.store(normed_ptr + here, (y / row_scale).to(tl.float8e4nv), mask=inside)
    else:
        tl.store(normed_ptr + here, y.to(tl.bfloat16), mask=inside)


@triton.jit
def _rms_rotate_kernel(
    x_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    x_stride,
    part_stride,
    eps,
    PAIRS: tl.constexpr,
    HEAD_PAIRS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROTATE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    pair = tl.arange(0, BLOCK)
    inside = pair < PAIRS
    word = tl.load(x_ptr + token * x_stride + part * PAIRS + pair, mask=inside, other=0)
    weight = tl.load(weight_ptr + part * PAIRS + pair, mask=inside, other=0)
    # bf16 is the upper half of an fp32: the low half of a word is the even channel.
    even = (word << 16).to(tl.float32, bitcast=True)
    odd = (word & -65536).to(tl.float32, bitcast=True)
    by = tl.rsqrt(tl.sum(even * even + odd * odd, 0) / (2 * PAIRS) + eps)
    even = even * by * (weight << 16).to(tl.float32, bitcast=True)
    odd = odd * by * (weight & -65536).to(tl.float32, bitcast=True)
    if ROTATE:
        cos = tl.load(cos_ptr + token * HEAD_PAIRS + pair % HEAD_PAIRS)
        sin = tl.load(sin_ptr + token * HEAD_PAIRS + pair % HEAD_PAIRS)
        turned = even * cos - odd * sin
        odd = even * sin + odd * cos
        even = turned
    low = even.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 65535
    high = odd.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) << 16
    tl.store(out_ptr + part * part_stride + token * PAIRS + pair, low | high, mask=inside)


@triton.jit
def _quantise_kernel(
    x_ptr,
    values_ptr,
    scales_ptr,
    width,
    x_stride,
    GELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if GELU:
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    scale = tl.maximum(tl.max(tl.abs(x), 0), _SMALLEST_ROW) / _FP8_MAX
    tl.store(scales_ptr + row, scale)
    tl.store(values_ptr + row * width + column, (x / scale).to(tl.float8e4nv), mask=inside)
