# pyright: reportPrivateImportUsage=false
"""What the large kernels of a forward take alone: the limit of a path, in the same run as the path itself.

Each product and each attention runs by itself for long enough to settle the clocks; norms, rotations and rounding are left out.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.device_time import sustained

_TEXT_TOKENS = 512


def kernels_alone_s(config: Any, tokens: int, device: Any) -> dict[str, float]:
    """Seconds of a forward's products and attentions, by path; those that this device has kernels for."""
    import torch

    if device.type != "cuda":
        return {}
    width = config.num_attention_heads * config.attention_head_dim
    products, products8 = (sum(run(tokens, width, config.ffn_dim)) for run in (_products_s, _products8_s))
    q, k, v = (
        torch.randn(
            1, tokens, config.num_attention_heads, config.attention_head_dim, device=device
        ).bfloat16()
        for _ in range(3)
    )
    exact, to_text = _attention_s(q, k, v)
    layers, alone = config.num_layers, dict[str, float]()
    alone["exact"] = layers * (products + exact + to_text)
    alone["fp8"] = layers * (products8 + exact + to_text)
    if (fast := _attention8_s(q, k, v)) is not None:
        alone["fp8 attention"] = layers * (products + fast + to_text)
        alone["both"] = layers * (products8 + fast + to_text)
    return alone


def _sizes(width: int, hidden: int) -> list[tuple[int, int, int]]:
    """Of a block's products: inputs, outputs, and how many there are."""
    return [(width, 3 * width, 1), (width, width, 3), (width, hidden, 1), (hidden, width, 1)]


def _products_s(tokens: int, width: int, hidden: int) -> list[float]:
    import torch
    import torch.nn.functional as F

    taken: list[float] = []
    for inputs, outputs, count in _sizes(width, hidden):
        x = torch.randn(tokens, inputs, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) * inputs**-0.5
        bias = torch.randn(outputs, device="cuda", dtype=torch.bfloat16)

        def product(x: Any = x, w: Any = w, bias: Any = bias) -> Any:
            if len(bias) == hidden:
                return torch._addmm_activation(bias, x, w.t(), use_gelu=True)
            return F.linear(x, w, bias)

        taken.append(count * sustained(product))
    return taken


def _products8_s(tokens: int, width: int, hidden: int) -> list[float]:
    import torch

    from turnout.engines.wan.block_ops import quantise_rows

    taken: list[float] = []
    for inputs, outputs, count in _sizes(width, hidden):
        x = quantise_rows(torch.randn(tokens, inputs, device="cuda"))
        w = quantise_rows(torch.randn(outputs, inputs, device="cuda"))
        scales = w.scales.t().contiguous()
        bias = torch.randn(outputs, device="cuda", dtype=torch.bfloat16)

        def product(x: Any = x, w: Any = w, scales: Any = scales, bias: Any = bias) -> Any:
            given = {"scale_a": x.scales, "scale_b": scales, "bias": bias, "use_fast_accum": True}
            return torch._scaled_mm(x.values, w.values.t(), out_dtype=bias.dtype, **given)

        taken.append(count * sustained(product))
    return taken


def _attention_s(q: Any, k: Any, v: Any) -> tuple[float, float]:
    """Of the clip to itself, and to the text."""
    from turnout.engines.wan.attention import choose_attention

    attend = choose_attention(q.device, q.dtype, q.shape[-1]).attend
    text = [each[:, :_TEXT_TOKENS].contiguous() for each in (k, v)]
    return sustained(lambda: attend(q, k, v)), sustained(lambda: attend(q, *text))


def _attention8_s(q: Any, k: Any, v: Any) -> float | None:
    """FlashAttention 3 alone, on what was rounded before."""
    from turnout.engines.wan import attention

    flash3: Callable[..., Any] | None = attention.find_flash3()
    if attention.choose_fp8_attention(q.device, q.dtype, q.shape[-1]) is None or flash3 is None:
        return None
    from turnout.engines.wan.triton_attention import centred8, queries8

    queries, (keys, _), (values, _) = queries8(q), centred8(k, rotates=True), centred8(v, rotates=False)
    return sustained(
        lambda: flash3(
            *(each.values for each in (queries, keys, values)),
            q_descale=queries.scales,
            k_descale=keys.scales,
            v_descale=values.scales,
        )
    )
