# pyright: reportUnknownMemberType=false
"""The encoder of UMT5, which turns a prompt into what Wan is told: T5's blocks, with a table of relative positions in each.

Of our own because it is small, and transformers takes two seconds of CPU to import before the first step of every gang.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Umt5Shape:
    """As transformers writes it to a `config.json`."""

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_layers: int
    num_heads: int
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6


def read_umt5_shape(file: Path) -> Umt5Shape:
    said = cast("dict[str, Any]", json.loads(file.read_text()))
    if (kind := said.get("feed_forward_proj", "gated-gelu")) != "gated-gelu":
        raise ValueError(f"{file}: a text encoder with {kind} is not UMT5's")
    return Umt5Shape(**{name: said[name] for name in Umt5Shape.__dataclass_fields__ if name in said})


class Umt5Encoder(nn.Module):
    """One prompt at a time, without padding: nothing is masked and nothing computed for what is not there."""

    def __init__(self, shape: Umt5Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self._shape = shape
        self.embedding = _embedding(shape.vocab_size, shape.d_model, dtype)
        self.blocks = nn.ModuleList(_Block(shape, dtype) for _ in range(shape.num_layers))
        self.norm = _Norm(shape, dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[length] → [length, d_model]"""
        buckets = _buckets(len(tokens), self._shape).to(tokens.device)
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden, buckets)
        return self.norm(hidden)


def _embedding(words: int, width: int, dtype: torch.dtype) -> nn.Embedding:
    """Without random numbers: to draw them for a tensor without memory, torch imports its compiler, 0.8 s in each rank."""
    return nn.Embedding.from_pretrained(torch.empty(words, width, dtype=dtype))


class _Block(nn.Module):
    def __init__(self, shape: Umt5Shape, dtype: torch.dtype) -> None:
        super().__init__()
        width, inner = shape.d_model, shape.num_heads * shape.d_kv
        self._heads = shape.num_heads
        self.attention_norm = _Norm(shape, dtype)
        self.q, self.k, self.v = (nn.Linear(width, inner, bias=False, dtype=dtype) for _ in range(3))
        self.o = nn.Linear(inner, width, bias=False, dtype=dtype)
        self.positions = _embedding(shape.relative_attention_num_buckets, shape.num_heads, dtype)
        self.product_norm = _Norm(shape, dtype)
        self.gate, self.up = (nn.Linear(width, shape.d_ff, bias=False, dtype=dtype) for _ in range(2))
        self.down = nn.Linear(shape.d_ff, width, bias=False, dtype=dtype)

    def forward(self, hidden: torch.Tensor, buckets: torch.Tensor) -> torch.Tensor:
        normed = self.attention_norm(hidden)
        q, k, v = (
            part(normed).unflatten(-1, (self._heads, -1)).transpose(0, 1) for part in (self.q, self.k, self.v)
        )
        bias = self.positions(buckets).permute(2, 0, 1)
        # T5 does not scale its scores.
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        hidden = hidden + self.o(seen.transpose(0, 1).flatten(1))
        normed = self.product_norm(hidden)
        gated = functional.gelu(self.gate(normed), approximate="tanh") * self.up(normed)
        return hidden + self.down(gated)


class _Norm(nn.Module):
    def __init__(self, shape: Umt5Shape, dtype: torch.dtype) -> None:
        super().__init__()
        self._epsilon = shape.layer_norm_epsilon
        self.weight = nn.Parameter(torch.empty(shape.d_model, dtype=dtype))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        exact = hidden.float()
        scaled = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + self._epsilon)
        return self.weight * scaled.to(self.weight.dtype)


def _buckets(length: int, shape: Umt5Shape) -> torch.Tensor:
    """Which row of the table each pair of places takes: half of the rows for each direction, of these half for single distances and
    the rest for ever wider ranges up to the largest."""
    places = torch.arange(length)
    distance = places[None, :] - places[:, None]
    half = shape.relative_attention_num_buckets // 2
    single = half // 2
    far = distance.abs()
    widening = math.log(shape.relative_attention_max_distance / single)
    # Distances below `single` are not taken from here; 1 keeps the logarithm finite.
    wide = single + ((far.clamp(min=1) / single).log() / widening * (half - single)).long()
    return torch.where(far < single, far, wide.clamp(max=half - 1)) + half * (distance > 0)


def umt5_weight_map(layers: int) -> Mapping[str, tuple[str]]:
    """Which of transformers' tensors each parameter is."""
    inside = {
        "attention_norm": "0.layer_norm",
        "q": "0.SelfAttention.q",
        "k": "0.SelfAttention.k",
        "v": "0.SelfAttention.v",
        "o": "0.SelfAttention.o",
        "positions": "0.SelfAttention.relative_attention_bias",
        "product_norm": "1.layer_norm",
        "gate": "1.DenseReluDense.wi_0",
        "up": "1.DenseReluDense.wi_1",
        "down": "1.DenseReluDense.wo",
    }
    blocks = {
        f"blocks.{layer}.{ours}.weight": (f"encoder.block.{layer}.layer.{theirs}.weight",)
        for layer in range(layers)
        for ours, theirs in inside.items()
    }
    return {
        "embedding.weight": ("shared.weight",),
        **blocks,
        "norm.weight": ("encoder.final_layer_norm.weight",),
    }
