"""Steps that would hardly change are left out: near the whole clip, and the same after a resume."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.engines.conftest import SPEC

CACHED = replace(SPEC, step_cache=0.2, steps=12, guidance=(3.0, 3.0), shift=1.0)


def test_left_out_steps_change_the_clip_a_little(
    engine: Callable[[str], Any], finish: Callable[..., Any]
) -> None:
    whole = finish(engine("t2v").begin(replace(CACHED, step_cache=0.0), None))
    cached = engine("t2v").begin(CACHED, None)
    got = finish(cached)
    assert 2 <= cached._cache.skipped <= 9
    assert 0 < float((got - whole).norm() / whole.norm()) < 0.1


def test_a_resumed_render_leaves_out_the_same_steps(
    engine: Callable[[str], Any], finish: Callable[..., Any]
) -> None:
    import torch

    rendering = engine("t2v").begin(CACHED, None)
    kept: list[bytes] = []
    while rendering.step < rendering.of:
        rendering.advance()
        kept.append(rendering.snapshot())
    for step in (3, 6, 9):
        assert torch.equal(finish(engine("t2v").resume(CACHED, kept[step])), rendering.latents)
