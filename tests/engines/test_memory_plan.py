"""Clips that cannot fit are refused with what would."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from turnout.engines.base import Unrenderable
from turnout.engines.wan.memory_rules import MemoryPlan
from turnout.engines.wan.shape import DEFAULTS, WanShape
from turnout.tasks.video_rules import VideoSpec

GIB = 2**30
A14B = WanShape("t2v", 40, 40, (1, 2, 2), 16, 8, 4, 0.875, 2, DEFAULTS["t2v"])
PLAN = MemoryPlan(A14B, width=5120, number_bytes=2, ulysses=1, ranks=1, tile_above_pixels=1280 * 736)
LARGE = VideoSpec("", "", 1280, 720, 81, 16, 40, (3.0, 4.0), 12.0, 0)


def test_estimate_covers_what_was_measured() -> None:
    """On an H200: 3.4 and 7.9 GiB for a forward at 480p and 720p, with 0.8 GiB of text; 3.5 and 8.1 to decode."""
    for width, height, measured in [(832, 480, 4.2), (1280, 720, 8.7)]:
        estimate = PLAN.needed_bytes(width, height, 81) / GIB
        assert measured <= estimate <= 1.25 * measured


@pytest.mark.parametrize(("width", "height", "measured"), [(832, 480, 4.4), (1280, 720, 9.1)])
def test_estimate_with_fp8_attention_covers_what_was_measured(
    width: int, height: int, measured: float
) -> None:
    """On an H200 4.0 and 8.7 GiB with one prompt, whose text takes 0.4."""
    estimate = replace(PLAN, fp8_attention=True)._forward(width, height, 81) / GIB
    assert measured <= estimate <= 1.2 * measured


@pytest.mark.parametrize(("ranks", "measured"), [(2, 6.5), (4, 3.5), (8, 2.1)])
def test_estimate_for_one_of_several_ranks_covers_what_was_measured(ranks: int, measured: float) -> None:
    forward = replace(PLAN, ulysses=ranks)._forward(1280, 720, 81) / GIB
    assert measured <= forward <= measured + 1.2


@pytest.mark.parametrize(
    ("width", "height", "ranks", "measured"),
    [
        (1280, 720, 1, 8.05),
        (1280, 720, 2, 4.56),
        (1280, 720, 4, 2.62),
        (1280, 720, 8, 1.57),
        (832, 480, 8, 0.75),
    ],
)
def test_estimate_for_a_band_of_rows_covers_what_was_measured(
    width: int, height: int, ranks: int, measured: float
) -> None:
    decode = replace(PLAN, ranks=ranks)._decode(width, height) / GIB
    assert measured <= decode <= measured + 0.3


def test_the_largest_moment_is_what_counts() -> None:
    tokens, text = 21 * 45 * 80, 4 * 512 * 40
    assert PLAN._forward(1280, 720, 81) == (11.5 * tokens + text) * 5120 * 2
    assert replace(PLAN, ulysses=2)._forward(1280, 720, 81) == (9.25 * tokens + text) * 5120 * 2
    assert PLAN._decode(1280, 720) == 9_600 * 1280 * 720, "no more rows than there are"
    assert replace(PLAN, ranks=2)._decode(1280, 720) == 9_600 * 1280 * (360 + 56)
    assert PLAN._decode(2560, 1440) == 9_600 * (1280 * 736 + 56 * 2560), "in bands, one after the other"
    assert replace(PLAN, number_bytes=4)._decode(1280, 720) == 2 * PLAN._decode(1280, 720)
    for frames in (1, 81):
        assert PLAN.needed_bytes(1280, 720, frames) == max(
            PLAN._forward(1280, 720, frames), PLAN._decode(1280, 720)
        )


def test_clip_that_fits_has_no_fault() -> None:
    assert PLAN.fault(LARGE, 12 * GIB) is None
    exactly = PLAN.needed_bytes(1280, 720, 81)
    assert PLAN.fault(LARGE, exactly) is None and PLAN.fault(LARGE, exactly - 1) is not None


def test_fewer_frames_are_named_first() -> None:
    fault = PLAN.fault(LARGE, 17 * GIB // 2)
    assert fault is not None
    frames = int(fault.split("at most ")[1].split()[0])
    assert A14B.fault(1280, 720, frames) is None
    assert PLAN.needed_bytes(1280, 720, frames) <= 17 * GIB // 2 < PLAN.needed_bytes(1280, 720, frames + 4)


def test_smaller_size_is_named_where_no_length_fits() -> None:
    fault = PLAN.fault(LARGE, 3 * GIB)
    assert fault is not None and "81 frames of 640x352 would fit" in fault


def test_nothing_is_promised_where_nothing_fits() -> None:
    fault = PLAN.fault(LARGE, 1 << 20)
    assert fault is not None and "no clip" in fault


def test_engine_refuses_what_does_not_fit_and_renders_the_next(
    engine: Callable[[str], Any], spec: VideoSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = type(engine("t2v").model)
    with monkeypatch.context() as patch:
        patch.setattr(model, "free_bytes", lambda _: 1 << 20)
        with pytest.raises(Unrenderable, match="GiB are free"):
            engine("t2v").begin(spec, None)
    engine("t2v").begin(spec, None).advance()


def test_memory_that_runs_out_fails_the_task_alone(
    engine: Callable[[str], Any], spec: VideoSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from turnout.engines.wan.transformer import WanTransformer

    rendering = engine("t2v").begin(spec, None)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(WanTransformer, "forward", full)
        with pytest.raises(Unrenderable, match="9 frames of 48x32 would fit"):
            rendering.advance()
    assert rendering.step == 0
    rendering.advance()
