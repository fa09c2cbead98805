# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The operations between the matrix products of a Wan block, in plain PyTorch.

`PlainOps` is the twin of the Triton kernels in `triton_ops`: CPUs, fp32 and tests use it. In fp32 on a CPU it performs
the very operations of diffusers' WanTransformerBlock, so the result has the same bits. Sequences are [tokens, width]:
a render has a batch of one.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F

from turnout.engines.wan.rotary import Rotation

EPS = 1e-6
FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
"""The largest number that FP8 can hold."""
_SMALLEST_ROW = 1e-8


@dataclass(frozen=True, slots=True)
class Rows8:
    """A matrix in fp8 with one scale a row: values [rows, columns], scales [rows, 1] in fp32."""

    values: torch.Tensor
    scales: torch.Tensor


Activation = torch.Tensor | Rows8
"""What a projection takes: a tensor, or rows that were quantised where they were made."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter that is kept apart adds to a projection's result, from column `begin` on."""

    down: torch.Tensor
    up: torch.Tensor
    scale: float
    begin: int
    bias: torch.Tensor | None

    def add_to(self, y: torch.Tensor, x: Activation) -> None:
        if isinstance(x, Rows8):
            x = (x.values.float() * x.scales).to(y.dtype)
        more = F.linear(F.linear(x, self.down), self.up) * self.scale
        y[..., self.begin : self.begin + more.shape[-1]] += (
            more if self.bias is None else more + self.bias * self.scale
        )


@dataclass(frozen=True, slots=True)
class PerToken:
    """A vector for each token [k, width] in fp32: one for all (k = 1), one each, or the one that `rows` names."""

    vectors: torch.Tensor
    rows: torch.Tensor | None = None

    def spread(self) -> torch.Tensor:
        """As it broadcasts against [tokens, width]."""
        return self.vectors if self.rows is None else self.vectors[self.rows]


@dataclass(frozen=True, slots=True)
class Pending:
    """What a layer has yet to add to the residual stream; the next norm adds it in the same pass over memory."""

    out: torch.Tensor
    gate: PerToken | None = None


@dataclass(frozen=True, slots=True)
class Modulation:
    """A norm without weights, scaled and shifted by the timestep."""

    scale: PerToken
    shift: PerToken


@dataclass(frozen=True, slots=True)
class Affine:
    """A norm with weights of its own, [width] in fp32."""

    weight: torch.Tensor
    bias: torch.Tensor


class BlockOps(Protocol):
    def add_norm(
        self, x: torch.Tensor, pending: Pending | None, norm: Modulation | Affine
    ) -> tuple[torch.Tensor, Activation]:
        """The residual stream with `pending` added, and its layer norm."""
        ...

    def rms_rotate(
        self, x: torch.Tensor, weights: torch.Tensor, heads: int, rotation: Rotation | None
    ) -> tuple[torch.Tensor, ...]:
        """For each row of `weights`, the next channels of x: RMS-normed over all heads, rotated, [tokens, heads, D]."""
        ...

    def activate(self, x: torch.Tensor) -> Activation:
        """x as a projection takes it."""
        ...

    def gelu(self, x: torch.Tensor) -> Activation:
        """GELU (tanh) of x, as a projection takes it."""
        ...

    def linear_gelu(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """A projection followed by GELU (tanh)."""
        ...


class PlainOps:
    def __init__(self, quantises: bool = False) -> None:
        self._quantises = quantises

    def add_norm(
        self, x: torch.Tensor, pending: Pending | None, norm: Modulation | Affine
    ) -> tuple[torch.Tensor, Activation]:
        if pending is not None:
            out = pending.out.float()
            x = (x.float() + (out if pending.gate is None else out * pending.gate.spread())).type_as(x)
        width = (x.shape[-1],)
        if isinstance(norm, Affine):
            normed = F.layer_norm(x.float(), width, norm.weight, norm.bias, EPS)
        else:
            plain = F.layer_norm(x.float(), width, None, None, EPS)
            normed = plain * (1 + norm.scale.spread()) + norm.shift.spread()
        return x, self.activate(normed.type_as(x))

    def rms_rotate(
        self, x: torch.Tensor, weights: torch.Tensor, heads: int, rotation: Rotation | None
    ) -> tuple[torch.Tensor, ...]:
        count, width = weights.shape
        parts = x[:, : count * width].unflatten(-1, (count, width)).unbind(1)
        normed = (F.rms_norm(part, (width,), w, EPS) for part, w in zip(parts, weights, strict=True))
        by_head = (part.unflatten(-1, (heads, -1)) for part in normed)
        return tuple(part if rotation is None else _rotate(part, rotation) for part in by_head)

    def activate(self, x: torch.Tensor) -> Activation:
        return quantise_rows(x) if self._quantises else x

    def gelu(self, x: torch.Tensor) -> Activation:
        return self.activate(F.gelu(x, approximate="tanh"))

    def linear_gelu(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def quantise_rows(x: torch.Tensor) -> Rows8:
    """Each row scaled to the range of fp8, so that one large row costs the others no precision."""
    rows = x.float()
    scales = rows.abs().amax(-1, keepdim=True).clamp_min(_SMALLEST_ROW) / FP8_MAX
    return Rows8((rows / scales).to(FP8), scales)


def _rotate(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    cos, sin = rotation.cos[:, None], rotation.sin[:, None]
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).type_as(x)
