# pyright: reportPrivateImportUsage=false
"""Attention in fp8: what rounding costs, which steps have it, and where it is refused. The plain twin stands for the kernels."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from turnout.engines.base import EngineSetup, Parallel, Unrenderable
from turnout.tasks.video_rules import VideoSpec


@pytest.fixture
def fast(spec: VideoSpec) -> VideoSpec:
    return replace(spec, fp8_attention=True)


def heads(width: int = 128, tokens: int = 300) -> tuple[Any, Any, Any]:
    import torch

    made = torch.randn(3, 1, tokens, 4, width, generator=torch.Generator().manual_seed(1))
    return made[0], made[1], made[2]


def off(q: Any, k: Any, v: Any) -> float:
    from turnout.engines.wan.attention import sdpa
    from turnout.engines.wan.fp8_attention import attend

    exact = sdpa(q, k, v)
    return float((attend(q, k, v) - exact).norm() / exact.norm())


@pytest.mark.parametrize("width", [24, 64, 128])
def test_it_is_near_exact_attention_at_any_width_of_heads(width: int) -> None:
    q, k, v = heads(width)
    assert 0.01 < off(q, k, v) < 0.08


def test_a_mean_of_keys_or_values_costs_nothing() -> None:
    q, k, v = heads()
    shift = heads()[0][:, :1]
    assert off(q, k + 5 * shift, v) < 1.1 * off(q, k, v)
    assert off(q, k, v + 5 * shift) < 0.1 * off(q, k, v), "of a larger result, as much is lost"


def test_a_channel_with_large_numbers_costs_the_others_no_precision() -> None:
    from turnout.engines.wan import fp8_attention

    q, k, v = heads()
    q[..., :4] *= 10
    k[..., :4] *= 3
    rotating = off(q, k, v)
    with mock.patch.object(fp8_attention, "rotated", lambda x: x):  # type: ignore[misc]
        assert rotating < 0.8 * off(q, k, v)


def test_heads_do_not_see_each_other() -> None:
    """So ranks that share the heads give the bits of one."""
    import torch

    from turnout.engines.wan.fp8_attention import attend

    q, k, v = heads(24)
    halves = [attend(*(each[:, :, part] for each in (q, k, v))) for part in (slice(0, 2), slice(2, 4))]
    assert torch.cat(halves, 2).equal(attend(q, k, v))


@pytest.mark.parametrize(
    ("steps", "exact"),
    [(1, {0}), (2, {0, 1}), (4, {0, 3}), (20, {0, 1, 18, 19}), (40, {0, 1, 2, 3, 36, 37, 38, 39})],
)
def test_the_first_and_last_steps_are_exact(steps: int, exact: set[int]) -> None:
    from turnout.engines.wan.fp8_attention import is_exact_step

    assert {step for step in range(steps) if is_exact_step(step, steps)} == exact


def test_a_clip_has_it_in_its_middle_steps_alone(engine: Callable[[str], Any], fast: VideoSpec) -> None:
    from turnout.engines.wan.attention import AttentionKernel, sdpa

    calls: list[int] = []
    rendering = engine("t2v").begin(fast, None)

    def counting(*args: Any) -> Any:
        calls.append(rendering.step)
        return sdpa(*args)

    rendering._attention8 = AttentionKernel("counting", counting)
    while rendering.step < rendering.of:
        rendering.advance()
    blocks = engine("t2v").model.experts[0].shape.layers
    assert [calls.count(step) for step in range(fast.steps)] == [0, *[2 * blocks] * (fast.steps - 2), 0]


def test_a_clip_is_near_the_exact_one_and_resumes_with_the_same_bits(
    engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec, fast: VideoSpec
) -> None:
    exact = finish(engine("t2v").begin(spec, None))
    rendering = engine("t2v").begin(fast, None)
    rendering.advance()
    rendering.advance()
    kept = rendering.snapshot()
    whole = finish(rendering)
    assert 0 < float((whole - exact).norm() / exact.norm()) < 0.05
    assert finish(engine("t2v").resume(fast, kept)).equal(whole)


def test_attention_to_the_text_stays_exact(engine: Callable[[str], Any], fast: VideoSpec) -> None:
    from turnout.engines.wan import fp8_attention

    seen: list[tuple[int, int]] = []

    def noting(q: Any, k: Any, v: Any) -> Any:
        seen.append((q.shape[1], k.shape[1]))
        return fp8_attention.attend(q, k, v)

    rendering = engine("t2v").begin(fast, None)
    rendering._attention8 = replace(rendering._attention8, attend=noting)
    for _ in range(2):
        rendering.advance()
    assert seen and all(queries == keys for queries, keys in seen)


def test_where_no_kernel_has_it_a_model_is_refused_at_load_and_a_clip_at_its_begin(
    tiny: Callable[[str], Path], engine: Callable[[str], Any], fast: VideoSpec, spec: VideoSpec
) -> None:
    from turnout.engines.wan import load, wan_model

    with (
        mock.patch.object(load, "choose_fp8_attention", return_value=None),
        pytest.raises(ValueError, match="pip install fa3-fwd"),
    ):
        load.make_engine(EngineSetup(tiny("t2v"), Parallel(), fp8_attention=True))
    with mock.patch.object(wan_model, "choose_fp8_attention", return_value=None):
        with pytest.raises(Unrenderable, match="Hopper GPU"):
            engine("t2v").begin(fast, None)
        engine("t2v").begin(spec, None).advance()
