# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateImportUsage=false
"""Wan's transformer, written out: one forward pass for every device, kind of model and way to share the work.

`block_ops` holds what lies between the matrix products, `attention` the attention kernel, `sequence` what ranks tell
each other. Weights come from diffusers' files; `weight_map` says which parameter is made of which tensors there.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from turnout.engines.sequence import Attend, SequenceShare
from turnout.engines.wan.attention import AttentionKernel
from turnout.engines.wan.block_ops import (
    EPS,
    Activation,
    Affine,
    BlockOps,
    LowRank,
    Modulation,
    Pending,
    PerToken,
    Rows8,
    quantise_rows,
)
from turnout.engines.wan.rotary import Rotation, rotation


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """The sizes of one expert."""

    heads: int
    head_width: int
    layers: int
    hidden: int
    in_channels: int
    out_channels: int
    text_width: int
    time_width: int
    patch: tuple[int, int, int]

    @property
    def width(self) -> int:
        return self.heads * self.head_width


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The timestep of every token: the distinct ones, and which token has which; all have the first without `rows`."""

    values: torch.Tensor
    rows: torch.Tensor | None = None


@dataclass(slots=True)
class TextContext:
    """A prompt as one expert sees it. The expert fills it in its first forward; it does not depend on the step."""

    embeddings: torch.Tensor
    """As the text encoder made them, [1, tokens, width]."""
    embedded: torch.Tensor | None = None
    keys_values: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=dict[int, tuple[torch.Tensor, torch.Tensor]]
    )


@dataclass(frozen=True, slots=True)
class Runtime:
    """How the blocks compute; the same for all of them."""

    ops: BlockOps
    """Between the products of a block; may quantise for them."""
    outer_ops: BlockOps
    """Before the last projection, which is exact always."""
    attention: AttentionKernel
    share: SequenceShare


class Projection(nn.Module):
    """A linear layer. What adapters add is computed beside it (`low_ranks`), or lies in the weight already."""

    weight: nn.Parameter
    bias: nn.Parameter
    low_ranks: tuple[LowRank, ...] = ()

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=dtype), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs, dtype=dtype), requires_grad=False)

    def forward(self, x: Activation) -> torch.Tensor:
        assert isinstance(x, torch.Tensor), "only a projection in fp8 takes quantised rows"
        return self.adapted(F.linear(x, self.weight, self.bias), x)

    def adapted(self, y: torch.Tensor, x: Activation) -> torch.Tensor:
        """The result with what adapters add to it."""
        for low_rank in self.low_ranks:
            low_rank.add_to(y, x)
        return y


class Projection8(nn.Module):
    """A linear layer whose weight and input are fp8 with one scale a row; the result is in the bias's dtype."""

    weight8: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor
    low_ranks: tuple[LowRank, ...] = ()

    def __init__(self, exact: Projection) -> None:
        super().__init__()
        rows = quantise_rows(exact.weight)
        self.register_buffer("weight8", rows.values)
        self.register_buffer("scales", rows.scales.t().contiguous())
        self.register_buffer("bias", exact.bias.detach())

    def forward(self, x: Activation) -> torch.Tensor:
        assert isinstance(x, Rows8)
        y = self._product(x)
        for low_rank in self.low_ranks:
            low_rank.add_to(y, x)
        return y

    def _product(self, x: Rows8) -> torch.Tensor:
        weight, scales, bias = self.weight8, self.scales, self.bias
        if x.values.is_cuda:
            return torch._scaled_mm(  # pyright: ignore[reportPrivateUsage]
                x.values,
                weight.t(),
                scale_a=x.scales,
                scale_b=scales,
                bias=bias,
                out_dtype=bias.dtype,
                use_fast_accum=True,
            )
        return (x.values.float() @ weight.float().t() * x.scales * scales + bias.float()).to(bias.dtype)


class WanBlock(nn.Module):
    """Self-attention, attention to the text, feed-forward."""

    def __init__(self, shape: TransformerShape, dtype: torch.dtype, runtime: Runtime, place: int) -> None:
        super().__init__()
        width = shape.width
        self._heads = shape.heads
        self._runtime = runtime
        self._place = place
        self.qkv = Projection(width, 3 * width, dtype)
        self.qk_norm = _parameter((2, width), dtype)
        self.out = Projection(width, width, dtype)
        self.text_norm_weight = _parameter((width,), torch.float32)
        self.text_norm_bias = _parameter((width,), torch.float32)
        self.text_q = Projection(width, width, dtype)
        self.text_k = Projection(width, width, dtype)
        self.text_v = Projection(width, width, dtype)
        self.text_q_norm = _parameter((1, width), dtype)
        self.text_k_norm = _parameter((1, width), dtype)
        self.text_out = Projection(width, width, dtype)
        self.up = Projection(width, shape.hidden, dtype)
        self.down = Projection(shape.hidden, width, dtype)
        self.modulation = _parameter((1, 6, width), torch.float32)

    def forward(
        self,
        x: torch.Tensor,
        pending: Pending | None,
        step: torch.Tensor,
        rows: torch.Tensor | None,
        rotation: Rotation,
        text: TextContext,
        attend: Attend,
    ) -> tuple[torch.Tensor, Pending]:
        """`step` is [k, 6, width]; what the feed-forward adds is left pending for the next block's first norm."""
        vectors = (self.modulation + step.float()).unbind(1)
        shift, scale, gate, ff_shift, ff_scale, ff_gate = (PerToken(each, rows) for each in vectors)
        ops = self._runtime.ops
        x, h = ops.add_norm(x, pending, Modulation(scale, shift))
        # What a part makes on its way is freed when it returns; the large tensors of two parts never meet.
        pending = Pending(self._attend_to_clip(h, rotation, attend), gate)
        x, h = ops.add_norm(x, pending, Affine(self.text_norm_weight, self.text_norm_bias))
        pending = Pending(self._attend_to_text(h, text))
        x, h = ops.add_norm(x, pending, Modulation(ff_scale, ff_shift))
        return x, Pending(self._feed_forward(h), ff_gate)

    def _attend_to_clip(self, h: Activation, rotation: Rotation, attend: Attend) -> torch.Tensor:
        run = self._runtime
        qkv = self._qkv(h)
        q, k = run.ops.rms_rotate(qkv, self.qk_norm, self._heads, rotation)
        v = qkv[:, 2 * qkv.shape[-1] // 3 :].unflatten(-1, (self._heads, -1))
        seen = run.share.attended(q, k, v, attend)
        return self.out(run.ops.activate(seen.flatten(1)))

    def _attend_to_text(self, h: Activation, text: TextContext) -> torch.Tensor:
        run = self._runtime
        (q,) = run.ops.rms_rotate(self.text_q(h), self.text_q_norm, self._heads, None)
        k, v = self._text(text)
        seen = run.attention.attend(q[None], k[None], v[None])[0]
        return self.text_out(run.ops.activate(seen.flatten(1)))

    def _feed_forward(self, h: Activation) -> torch.Tensor:
        ops = self._runtime.ops
        if isinstance(h, Rows8) or self.up.low_ranks:
            return self.down(ops.gelu(self.up(h)))
        return self.down(ops.linear_gelu(h, self.up.weight, self.up.bias))

    def _qkv(self, h: Activation) -> torch.Tensor:
        if isinstance(h, Rows8) or h.is_cuda:
            return self.qkv(h)
        # On a CPU, one product over all three weights may round differently from diffusers' three.
        parts = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        return self.qkv.adapted(torch.cat([F.linear(h, weight, bias) for weight, bias in parts], dim=-1), h)

    def _text(self, text: TextContext) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the prompt, made in the first forward of a render."""
        kept = text.keys_values.get(self._place)
        if kept is None:
            assert text.embedded is not None
            k = F.rms_norm(self.text_k(text.embedded), (text.embedded.shape[-1],), self.text_k_norm[0], EPS)
            v = self.text_v(text.embedded)
            kept = k.unflatten(-1, (self._heads, -1)), v.unflatten(-1, (self._heads, -1))
            text.keys_values[self._place] = kept
        return kept


class WanTransformer(nn.Module):
    """One expert. Made on the meta device and filled by `weight_reader`."""

    def __init__(self, shape: TransformerShape, dtype: torch.dtype, runtime: Runtime) -> None:
        super().__init__()
        width, patch = shape.width, shape.patch
        self.shape = shape
        self._share = runtime.share
        self._ops = runtime.outer_ops
        self._attention = runtime.attention
        self._turns: tuple[tuple[int, int, int], Rotation] | None = None
        self.patch_weight = _parameter((width, shape.in_channels, *patch), dtype)
        self.patch_bias = _parameter((width,), dtype)
        # The timestep's embedder stays in fp32: bf16 cannot tell neighbouring timesteps apart.
        self.time_in = Projection(shape.time_width, width, torch.float32)
        self.time_out = Projection(width, width, torch.float32)
        self.time_modulation = Projection(width, 6 * width, dtype)
        self.text_in = Projection(shape.text_width, width, dtype)
        self.text_out = Projection(width, width, dtype)
        self.blocks = nn.ModuleList(WanBlock(shape, dtype, runtime, n) for n in range(shape.layers))
        self.modulation = _parameter((1, 2, width), torch.float32)
        self.out = Projection(width, shape.out_channels * math.prod(patch), dtype)

    def forward(
        self, latents: torch.Tensor, times: StepTimes, text: TextContext, attend: Attend | None = None
    ) -> torch.Tensor:
        """The predicted velocity of latents [1, C, T, H, W], with another attention between them than the exact one where `attend`
        is given. Without FSDP no other rank waits for one whose memory ran out."""
        self._share.exchanged = 0
        try:
            return self._forward(latents, times, text, attend or self._attention.attend)
        except torch.OutOfMemoryError as err:
            failed = str(err)
        if hasattr(self, "reshard"):  # an FSDPModule, whose class takes half a second of CPU to import
            raise torch.OutOfMemoryError(failed)  # the others wait for its shards, too
        # Here nothing refers to the failed pass any more, so its memory is free.
        shape, tokens = self.shape, latents[0, 0].numel() // math.prod(self.shape.patch)
        out_width = shape.out_channels * math.prod(shape.patch)
        self._share.make_up(shape.layers, (tokens, shape.heads, shape.head_width), out_width, latents)
        raise torch.OutOfMemoryError(failed)

    def _forward(
        self, latents: torch.Tensor, times: StepTimes, text: TextContext, attend: Attend
    ) -> torch.Tensor:
        t, h, w = (n // p for n, p in zip(latents.shape[2:], self.shape.patch, strict=True))
        grid = (t, h, w)
        x = F.conv3d(latents, self.patch_weight, self.patch_bias, stride=self.shape.patch)
        x = x[0].flatten(1).t().contiguous()
        if text.embedded is None:
            inner = F.gelu(self.text_in(text.embeddings[0]), approximate="tanh")
            text.embedded = self.text_out(inner)
        embedded, step, rows = self._step(times, x.dtype)

        x, rotation = self._share.mine(x, 0), self._rotation(grid, x.device)
        pending: Pending | None = None
        for block in self.blocks:
            x, pending = block(x, pending, step, rows, rotation, text, attend)

        shift, scale = (self.modulation + embedded[:, None]).unbind(1)
        _, h = self._ops.add_norm(x, pending, Modulation(PerToken(scale, rows), PerToken(shift, rows)))
        return self._unpatched(self._share.whole(self.out(h), 0), grid)

    def _step(
        self, times: StepTimes, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The timestep's embedding [k, width], what it tells the blocks [k, 6, width], and which token has which."""
        values, rows = times.values, times.rows
        if rows is not None:
            rows = self._share.mine(rows, 0)
            if not values.is_cuda:
                # Every token by itself, as diffusers does it: a product of few rows may round differently.
                values, rows = values[rows], None
        half = self.shape.time_width // 2
        rates = torch.exp(
            -math.log(10000) * torch.arange(half, dtype=torch.float32, device=values.device) / half
        )
        angles = values[:, None].float() * rates[None]
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        embedded = self.time_out(F.silu(self.time_in(waves))).to(dtype)
        return embedded, self.time_modulation(F.silu(embedded)).unflatten(1, (6, -1)), rows

    def _rotation(self, grid: tuple[int, int, int], device: torch.device) -> Rotation:
        if self._turns is None or self._turns[0] != grid:
            whole = rotation(grid, self.shape.head_width, device)
            mine = Rotation(self._share.mine(whole.cos, 0), self._share.mine(whole.sin, 0))
            self._turns = grid, mine
        return self._turns[1]

    def _unpatched(self, x: torch.Tensor, grid: tuple[int, int, int]) -> torch.Tensor:
        x = x.reshape(*grid, *self.shape.patch, -1).permute(6, 0, 3, 1, 4, 2, 5)
        return x.flatten(5, 6).flatten(3, 4).flatten(1, 2)[None]


def quantise(expert: WanTransformer) -> None:
    """Turn the large products of every block to fp8, in place. The text's stay: they run once a render."""
    for block in expert.blocks:
        for name in ("qkv", "out", "text_q", "text_out", "up", "down"):
            setattr(block, name, Projection8(getattr(block, name)))


def weight_map(layers: int) -> dict[str, tuple[str, ...]]:
    """For each parameter, the tensors of diffusers' files that lie in it, one below the other."""
    made: dict[str, tuple[str, ...]] = {"patch_weight": ("patch_embedding.weight",)}
    made |= {"patch_bias": ("patch_embedding.bias",), "modulation": ("scale_shift_table",)}
    for ours, theirs in _OUTER.items():
        made |= {f"{ours}.{kind}": (f"{theirs}.{kind}",) for kind in ("weight", "bias")}
    for place in range(layers):
        ours_at, theirs_at = f"blocks.{place}.", f"blocks.{place}."
        for ours, theirs in _BLOCK_PROJECTIONS.items():
            for kind in ("weight", "bias"):
                made[f"{ours_at}{ours}.{kind}"] = tuple(f"{theirs_at}{name}.{kind}" for name in theirs)
        for ours, theirs in _BLOCK_PARAMETERS.items():
            made[ours_at + ours] = tuple(theirs_at + name for name in theirs)
    return made


_OUTER = {
    "time_in": "condition_embedder.time_embedder.linear_1",
    "time_out": "condition_embedder.time_embedder.linear_2",
    "time_modulation": "condition_embedder.time_proj",
    "text_in": "condition_embedder.text_embedder.linear_1",
    "text_out": "condition_embedder.text_embedder.linear_2",
    "out": "proj_out",
}
_BLOCK_PROJECTIONS = {
    "qkv": ("attn1.to_q", "attn1.to_k", "attn1.to_v"),
    "out": ("attn1.to_out.0",),
    "text_q": ("attn2.to_q",),
    "text_k": ("attn2.to_k",),
    "text_v": ("attn2.to_v",),
    "text_out": ("attn2.to_out.0",),
    "up": ("ffn.net.0.proj",),
    "down": ("ffn.net.2",),
}
_BLOCK_PARAMETERS = {
    "qk_norm": ("attn1.norm_q.weight", "attn1.norm_k.weight"),
    "text_norm_weight": ("norm2.weight",),
    "text_norm_bias": ("norm2.bias",),
    "text_q_norm": ("attn2.norm_q.weight",),
    "text_k_norm": ("attn2.norm_k.weight",),
    "modulation": ("scale_shift_table",),
}


def _parameter(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)


def read_transformer_shape(config: dict[str, Any]) -> TransformerShape:
    """From diffusers' config.json; ValueError for a variant that this transformer is not."""
    wanted = {"cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "added_kv_proj_dim": None}
    for name, value in wanted.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} is {config[name]!r} in this transformer; only {value!r} is supported")
    if config.get("eps", 1e-6) != 1e-6:
        raise ValueError(f"eps is {config['eps']} in this transformer; only 1e-6 is supported")
    p_t, p_h, p_w = config.get("patch_size", (1, 2, 2))
    in_channels = int(config.get("in_channels", 16))
    return TransformerShape(
        heads=int(config["num_attention_heads"]),
        head_width=int(config.get("attention_head_dim", 128)),
        layers=int(config["num_layers"]),
        hidden=int(config.get("ffn_dim", 13824)),
        in_channels=in_channels,
        out_channels=int(config.get("out_channels") or in_channels),
        text_width=int(config.get("text_dim", 4096)),
        time_width=int(config.get("freq_dim", 256)),
        patch=(int(p_t), int(p_h), int(p_w)),
    )
