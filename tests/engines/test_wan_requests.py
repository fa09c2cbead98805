"""What an engine makes of requests, and what it refuses."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from turnout.engines.base import EngineSetup, Parallel, Unrenderable
from turnout.engines.contract import whole_clip
from turnout.tasks.video_rules import VideoSpec


def test_text_model_refuses_an_image(
    engine: Callable[[str], Any], spec: VideoSpec, first_frame: bytes
) -> None:
    with pytest.raises(Unrenderable, match="text alone"):
        engine("t2v").begin(spec, first_frame)


def test_image_model_refuses_to_start_without_one(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    with pytest.raises(Unrenderable, match="first frame"):
        engine("i2v").begin(spec, None)


def test_lost_image_is_refused_rather_than_ignored(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    with pytest.raises(Unrenderable, match="first frame"):
        engine("ti2v").begin(replace(spec, image="uploads/fox.png"), None)


def test_unreadable_image_is_refused(
    engine: Callable[[str], Any], spec: VideoSpec, first_frame: bytes
) -> None:
    for damaged in (b"", b"no image", first_frame[:200]):
        with pytest.raises(Unrenderable, match="no image"):
            engine("i2v").begin(spec, damaged)


@pytest.mark.parametrize("change", [{"frames": 10}, {"width": 100}, {"height": 24}, {"steps": 0}])
def test_impossible_specs_are_refused(
    engine: Callable[[str], Any], spec: VideoSpec, change: dict[str, Any]
) -> None:
    with pytest.raises(Unrenderable):
        engine("t2v").begin(replace(spec, **change), None)


def test_advancing_past_the_end_is_refused(
    engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    rendering = engine("t2v").begin(spec, None)
    finish(rendering)
    with pytest.raises(RuntimeError, match="steps are done"):
        rendering.advance()


def test_seed_decides_the_clip(
    engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    first, again = (finish(engine("t2v").begin(spec, None)) for _ in range(2))
    other = finish(engine("t2v").begin(replace(spec, seed=8), None))
    assert first.equal(again) and not first.equal(other)


def test_each_expert_has_its_own_guidance(
    engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    both, low, high = (
        finish(engine("t2v").begin(replace(spec, guidance=guidance), None))
        for guidance in [(3.0, 4.0), (3.5, 4.0), (3.0, 4.5)]
    )
    assert not both.equal(low) and not both.equal(high) and not low.equal(high)


def test_unguided_stage_computes_no_negative_branch(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    calls: list[object] = []
    hooks = [
        expert.register_forward_hook(lambda *_: calls.append(None)) for expert in engine("t2v").model.experts
    ]
    rendering = engine("t2v").begin(replace(spec, guidance=(1.0, 4.0)), None)
    high = int((rendering._solver.timesteps >= 875).sum())
    while rendering.step < rendering.of:
        rendering.advance()
    for hook in hooks:
        hook.remove()
    assert len(calls) == 2 * high + (spec.steps - high)


def test_given_first_frame_stays(
    engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec, first_frame: bytes
) -> None:
    rendering = engine("ti2v").begin(spec, first_frame)
    given = rendering.latents[:, :, :1].clone()
    finish(rendering)
    assert rendering.latents[:, :, :1].equal(given)


def test_image_of_another_size_is_cut_not_squeezed(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    """A wide picture of three stripes fills a narrower clip with its middle."""
    from turnout.engines.wan.inputs import _pixels

    stripes = np.zeros((64, 288, 3), dtype=np.uint8)
    stripes[:, :96, 0] = stripes[:, 96:192, 1] = stripes[:, 192:, 2] = 255
    out = io.BytesIO()
    Image.fromarray(stripes).save(out, "PNG")
    red, green, blue = _pixels(out.getvalue(), spec)[0, :, 0]
    assert (green > 0.9).float().mean() > 0.95
    assert (red > 0).float().mean() < 0.05 and (blue > 0).float().mean() < 0.05


def test_preview_is_a_small_animation(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    rendering = engine("t2v").begin(replace(spec, width=512, height=256, steps=2), None)
    for _ in range(2):
        with Image.open(io.BytesIO(rendering.preview())) as image:
            assert (image.format, image.size) == ("WEBP", (256, 128))
            assert getattr(image, "n_frames", 1) == 3
        rendering.advance()


def test_preview_uses_the_colours_that_lie_with_the_weights(
    tiny: Callable[[str], Path], engine: Callable[[str], Any], tmp_path: Path
) -> None:
    from turnout.engines.preview import FILE, read_or_fit

    codec = engine("t2v").model.codec
    (tmp_path / FILE).write_text('{"matrix": ' + str([[0.5, 0.0, 0.0]] * 16) + ', "bias": [0.0, 1.0, 0.0]}')
    stored, fitted = read_or_fit(tmp_path, codec.encode), read_or_fit(tiny("t2v"), codec.encode)
    assert stored.bias.tolist() == [0.0, 1.0, 0.0]
    assert tuple(fitted.matrix.shape) == (16, 3) and fitted.matrix.isfinite().all()


def test_large_clips_are_decoded_in_bands_to_the_same_bytes(
    tiny: Callable[[str], Path], engine: Callable[[str], Any], spec: VideoSpec
) -> None:
    from turnout.engines.wan.load import make_engine

    large = replace(spec, width=64, height=352, frames=5, steps=1)
    banded = make_engine(EngineSetup(tiny("t2v"), Parallel()), tile_above_pixels=64 * 128)
    renderings = [one.begin(large, None) for one in (engine("t2v"), banded)]
    for rendering in renderings:
        rendering.advance()
    whole, pieces = (whole_clip(rendering.decode()) for rendering in renderings)
    assert whole is not None and pieces is not None
    assert whole.shape == (5, 352, 64, 3)
    assert np.array_equal(whole, pieces)


def test_layouts_that_cannot_be_are_refused(tiny: Callable[[str], Path]) -> None:
    from turnout.engines.wan.load import make_engine

    for layout, why in [(Parallel(ulysses=3), "heads"), (Parallel(ulysses=2), "ranks")]:
        with pytest.raises(ValueError, match=why):
            make_engine(EngineSetup(tiny("t2v"), layout))
    with pytest.raises(ValueError, match="cfg"):
        Parallel(cfg=3)
