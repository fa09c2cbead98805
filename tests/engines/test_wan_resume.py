"""A render that was put away and taken up again is the render it would have been."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from turnout.engines.base import CheckpointRefused, EngineError, EngineSetup, Parallel
from turnout.engines.checkpoint import weights_digest
from turnout.engines.wan.tiny import make_tiny
from turnout.tasks.video_rules import LoraUse, VideoSpec


@pytest.mark.parametrize("step", [0, 1, 2, 3, 5, 6])
def test_resumed_run_yields_the_same_latents(
    engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec, step: int
) -> None:
    undisturbed = finish(engine("t2v").begin(spec, None))
    put_away = engine("t2v").begin(spec, None)
    for _ in range(step):
        put_away.advance()
    resumed = engine("t2v").resume(spec, put_away.snapshot())
    assert (resumed.step, resumed.of) == (step, spec.steps)
    assert finish(resumed).equal(undisturbed)


@pytest.mark.parametrize("kind", ["i2v", "ti2v"])
def test_resumed_run_keeps_the_first_frame_it_was_given(
    engine: Callable[[str], Any],
    finish: Callable[..., Any],
    spec: VideoSpec,
    first_frame: bytes,
    kind: str,
) -> None:
    undisturbed = finish(engine(kind).begin(spec, first_frame))
    put_away = engine(kind).begin(spec, first_frame)
    for _ in range(4):
        put_away.advance()
    assert finish(engine(kind).resume(spec, put_away.snapshot())).equal(undisturbed)


def test_resume_of_a_resume_yields_the_same_latents(
    engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    undisturbed = finish(engine("t2v").begin(spec, None))
    rendering = engine("t2v").begin(spec, None)
    while rendering.step < rendering.of:
        rendering.advance()
        rendering = engine("t2v").resume(spec, rendering.snapshot())
    assert rendering.latents.equal(undisturbed)


def test_snapshot_does_not_change_when_the_render_goes_on(
    engine: Callable[[str], Any], spec: VideoSpec
) -> None:
    rendering = engine("t2v").begin(spec, None)
    rendering.advance()
    first, again = rendering.snapshot(), rendering.snapshot()
    rendering.advance()
    assert first == again != rendering.snapshot()


@pytest.mark.parametrize("field", [field.name for field in fields(VideoSpec)])
def test_checkpoint_of_another_spec_is_refused(
    engine: Callable[[str], Any], spec: VideoSpec, field: str
) -> None:
    checkpoint = engine("t2v").begin(spec, None).snapshot()
    changed: dict[str, Any] = {
        "prompt": "a blue fox",
        "negative_prompt": "",
        "width": 64,
        "height": 96,
        "frames": 5,
        "fps": 24,
        "steps": 7,
        "guidance": (3.0, 4.5),
        "shift": 6.0,
        "seed": 8,
        "image": "uploads/fox.png",
        "guided_share": 0.75,
        "fp8": True,
        "euler": True,
        "step_cache": 0.1,
        "fp8_attention": True,
        "loras": (LoraUse("style", 1.0),),
    }
    # An adapter that is not declared is refused before the checkpoint is looked at.
    with pytest.raises(EngineError, match="no adapter style" if field == "loras" else "another spec"):
        engine("t2v").resume(replace(spec, **{field: changed[field]}), checkpoint)


def test_damaged_checkpoint_is_refused(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    checkpoint = engine("t2v").begin(spec, None).snapshot()
    for damaged in (b"", b"\x80\x04pickle", checkpoint[:-1], checkpoint[: len(checkpoint) // 2]):
        with pytest.raises(CheckpointRefused):
            engine("t2v").resume(spec, damaged)


def test_checkpoint_of_another_model_is_refused(engine: Callable[[str], Any], spec: VideoSpec) -> None:
    """Its spec may be the same; its latents and its scheduler are not."""
    checkpoint = engine("ti2v").begin(spec, None).snapshot()
    with pytest.raises(CheckpointRefused, match="other weights"):
        engine("t2v").resume(spec, checkpoint)


def test_weights_trained_anew_are_told_apart_from_the_old_ones(tmp_path: Path) -> None:
    first, second = (make_tiny("t2v", tmp_path / str(seed), seed) for seed in (0, 1))
    again = make_tiny("t2v", tmp_path / "again", 0)
    assert weights_digest(first) == weights_digest(again) != weights_digest(second)


def test_checkpoint_made_in_another_precision_goes_on(
    tiny: Callable[[str], Path], engine: Callable[[str], Any], finish: Callable[..., Any], spec: VideoSpec
) -> None:
    from turnout.engines.wan.load import make_engine

    halves = make_engine(EngineSetup(tiny("t2v"), Parallel(), dtype="bfloat16"))
    put_away = halves.begin(spec, None)
    put_away.advance()
    resumed = finish(engine("t2v").resume(spec, put_away.snapshot()))
    whole = finish(engine("t2v").begin(spec, None))
    assert 0 < float((resumed - whole).norm() / whole.norm()) < 0.05
