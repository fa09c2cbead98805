# pyright: reportPrivateImportUsage=false
"""The transformer of our own beside diffusers', and what it keeps, quantises and leaves out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnout.engines.base import EngineSetup, Parallel
from turnout.tasks.video_rules import VideoSpec


@pytest.fixture(scope="module")
def pair(single_thread: None) -> Callable[..., tuple[Any, Any]]:
    """Diffusers' transformer and ours, with the same random weights."""
    import torch
    from diffusers import WanTransformer3DModel

    from turnout.engines.sequence import SequenceShare
    from turnout.engines.wan.attention import choose_attention
    from turnout.engines.wan.load import choose_ops
    from turnout.engines.wan.transformer import Runtime, WanTransformer, read_transformer_shape, weight_map

    def make(quantises: bool = False) -> tuple[Any, Any]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            stock: Any = WanTransformer3DModel(
                num_attention_heads=4,
                attention_head_dim=24,
                ffn_dim=160,
                num_layers=3,
                text_dim=32,
                freq_dim=64,
            ).eval()
        cpu = torch.device("cpu")
        shape = read_transformer_shape(dict(stock.config))
        runtime = Runtime(
            choose_ops(cpu, torch.float32, quantises),
            choose_ops(cpu, torch.float32, False),
            choose_attention(cpu, torch.float32, 24),
            SequenceShare(),
        )
        ours = WanTransformer(shape, torch.float32, runtime)
        theirs = stock.state_dict()
        for name, parts in weight_map(shape.layers).items():
            parameter = ours.get_parameter(name)
            parameter.data.copy_(torch.cat([theirs[part] for part in parts]).view(parameter.shape))
        return stock, ours

    return make


def seen() -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(5)
    return torch.randn(1, 16, 3, 8, 12, generator=generator), torch.randn(1, 20, 32, generator=generator)


def test_forward_has_the_bits_of_diffusers(pair: Callable[..., tuple[Any, Any]]) -> None:
    import torch

    from turnout.engines.wan.transformer import StepTimes, TextContext

    stock, ours = pair()
    latents, text = seen()
    time = torch.tensor([700.0])
    with torch.no_grad():
        expected = stock(latents, time, text, return_dict=False)[0]
        assert ours(latents, StepTimes(time), TextContext(text)).equal(expected)


def test_forward_with_a_time_for_each_token_has_the_bits_of_diffusers(
    pair: Callable[..., tuple[Any, Any]],
) -> None:
    import torch

    from turnout.engines.wan.transformer import StepTimes, TextContext

    stock, ours = pair()
    latents, text = seen()
    values, rows = torch.tensor([0.0, 700.0]), (torch.arange(3 * 4 * 6) >= 24).long()
    with torch.no_grad():
        expected = stock(latents, values[rows][None], text, return_dict=False)[0]
        assert ours(latents, StepTimes(values, rows), TextContext(text)).equal(expected)


def test_text_is_projected_once_for_many_steps(pair: Callable[..., tuple[Any, Any]]) -> None:
    import torch

    from turnout.engines.wan.transformer import StepTimes, TextContext

    _, ours = pair()
    calls: list[None] = []
    for block in ours.blocks:
        block.text_k.register_forward_hook(lambda *_: calls.append(None))
    latents, text = seen()
    context = TextContext(text)
    with torch.no_grad():
        outputs = [ours(latents, StepTimes(torch.tensor([t])), context) for t in (900.0, 500.0, 900.0)]
    assert len(calls) == len(ours.blocks)
    assert outputs[0].equal(outputs[2]) and not outputs[0].equal(outputs[1])


def test_fp8_products_stay_near_the_exact_ones(pair: Callable[..., tuple[Any, Any]]) -> None:
    import torch

    from turnout.engines.wan.transformer import StepTimes, TextContext, quantise

    stock, ours = pair(quantises=True)
    quantise(ours)
    latents, text = seen()
    time = torch.tensor([700.0])
    with torch.no_grad():
        expected = stock(latents, time, text, return_dict=False)[0]
        got = ours(latents, StepTimes(time), TextContext(text))
    error = float((got - expected).norm() / expected.norm())
    assert 0 < error < 0.03


def test_every_weight_of_diffusers_is_used(pair: Callable[..., tuple[Any, Any]]) -> None:
    from turnout.engines.wan.transformer import weight_map

    stock, ours = pair()
    mapped = weight_map(3)
    assert mapped.keys() == {name for name, _ in ours.named_parameters()}
    used = [name for parts in mapped.values() for name in parts]
    assert sorted(used) == sorted(stock.state_dict())


@pytest.mark.parametrize(
    "other", [{"cross_attn_norm": False}, {"qk_norm": "layer_norm"}, {"added_kv_proj_dim": 64}, {"eps": 1e-5}]
)
def test_variants_that_would_be_computed_wrongly_are_refused(other: dict[str, Any]) -> None:
    from turnout.engines.wan.transformer import read_transformer_shape

    with pytest.raises(ValueError, match=next(iter(other))):
        read_transformer_shape({"num_attention_heads": 4, "num_layers": 2, **other})


def test_a_cpu_computes_attention_as_diffusers_does() -> None:
    import torch

    from turnout.engines.wan.attention import choose_attention

    assert choose_attention(torch.device("cpu"), torch.float32, 128).name == "sdpa"
    assert choose_attention(torch.device("cpu"), torch.bfloat16, 128).name == "sdpa"


def test_rotation_equals_that_of_diffusers() -> None:
    import torch
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    from turnout.engines.wan.rotary import rotation

    cos, sin = WanRotaryPosEmbed(128, (1, 2, 2), 1024)(torch.empty(1, 16, 5, 12, 14))
    ours = rotation((5, 6, 7), 128, torch.device("cpu"))
    assert ours.cos.equal(cos[0, :, 0, 0::2]) and ours.sin.equal(sin[0, :, 0, 1::2])


def test_large_rows_cost_the_others_no_precision() -> None:
    import torch

    from turnout.engines.wan.block_ops import quantise_rows

    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    x[3] *= 10_000
    rows = quantise_rows(x)
    off = (rows.values.float() * rows.scales - x).norm(dim=1) / x.norm(dim=1)
    assert off.max() < 0.04


def test_lossy_engine_is_near_the_exact_one(
    tiny: Callable[[str], Path], engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    from turnout.engines.wan.load import make_engine

    exact = finish(engine("t2v").begin(spec, None))
    for lossy in (
        make_engine(EngineSetup(tiny("t2v"), Parallel(), fp8=True)).begin(spec, None),
        engine("t2v").begin(replace(spec, guided_share=0.75), None),
    ):
        got = finish(lossy)
        assert 0 < float((got - exact).norm() / exact.norm()) < 0.1


def test_guidance_stops_where_it_was_told_to(tiny: Callable[[str], Path], spec: VideoSpec) -> None:
    from turnout.engines.wan.load import make_engine

    engine = make_engine(EngineSetup(tiny("ti2v"), Parallel()))
    calls: list[None] = []
    engine.model.experts[0].register_forward_hook(lambda *_: calls.append(None))
    rendering = engine.begin(replace(spec, steps=8, guided_share=0.75), None)
    while rendering.step < rendering.of:
        rendering.advance()
    assert len(calls) == 6 * 2 + 2


def test_fp8_is_refused_with_sharded_weights(tiny: Callable[[str], Path]) -> None:
    from turnout.engines.wan.load import make_engine

    with pytest.raises(ValueError, match="fsdp"):
        make_engine(EngineSetup(tiny("t2v"), Parallel(ulysses=2, fsdp=True), fp8=True))
