"""The shipped weights draw what the prompt says, and go on doing so however the work is shared, resumed or rounded.

The checker measures; nothing in it was learned. `./dev quality` judges many prompts, this a few.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.engines.gangs import Seen, once, run_gang

from turnout.engines.base import EngineSetup, Frames, Parallel
from turnout.engines.contract import whole_clip
from turnout.fleet.family_rules import FAMILIES
from turnout.tasks.video_rules import RequestedVideo, VideoSpec, settle

T2V, TI2V = "wan-tiny-t2v", "wan-tiny-ti2v"
ASKED = "a red square moving to the right on a white background"
EXPECTED = ("red", "square", "right", "white")
STEPS, SNAPSHOT_AT = 10, 5  # half of the default: enough for one thing on a plain background
LEAST_FIRST_FRAME_DB = 28.0


def spec_of(model: str, prompt: str, seed: int = 1) -> VideoSpec:
    return settle(RequestedVideo(prompt=prompt, steps=STEPS), FAMILIES[model], ulysses=2, seed=seed)


def weights_of(model: str) -> Path:
    from turnout.engines.wan.builtin import find_weights

    return find_weights(f"builtin:{model}", Path("unused"))


def seen_in(frames: Frames) -> tuple[str, str, str, str]:
    """Colour, shape and motion of the one thing in a clip, and the background, as the checker reads them."""
    from training.checker import read
    from training.shipped import as_clip

    reading = read(as_clip(frames))
    (thing,) = reading.things
    assert not reading.backdrop.fade
    return thing.colour, thing.shape, thing.motion, reading.backdrop.first


@pytest.fixture(scope="module")
def alone(single_thread: None) -> tuple[bytes, Frames]:
    """One rank's clip, and the checkpoint it left halfway."""
    from turnout.engines.wan.load import make_engine

    rendering = make_engine(EngineSetup(weights_of(T2V), Parallel())).begin(spec_of(T2V, ASKED), None)
    while rendering.step < SNAPSHOT_AT:
        rendering.advance()
    checkpoint = rendering.snapshot()
    while rendering.step < rendering.of:
        rendering.advance()
    frames = whole_clip(rendering.decode())
    assert frames is not None
    return checkpoint, frames


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, alone: tuple[bytes, Frames]) -> Seen:
    def make(folder: Path) -> None:
        checkpoint = folder / "alone.checkpoint"
        checkpoint.write_bytes(alone[0])
        plain = {"weights": str(weights_of(T2V)), "spec": asdict(spec_of(T2V, ASKED))}
        ulysses, sharded = {"ulysses": 2}, {"ulysses": 2, "fsdp": True}
        tasks = [
            {**plain, "name": "ulysses", "parallel": ulysses},
            {**plain, "name": "fsdp", "parallel": sharded},
            {**plain, "name": "resumed", "parallel": ulysses, "checkpoint": str(checkpoint)},
        ]
        run_gang(folder, 2, tasks)

    return Seen(once(tmp_path_factory, "shipped_two_ranks", make), 2)


def test_one_rank_draws_what_was_asked(alone: tuple[bytes, Frames]) -> None:
    assert seen_in(alone[1]) == EXPECTED


@pytest.mark.parametrize("task", ["ulysses", "fsdp", "resumed"])
def test_two_ranks_draw_the_same_bytes(two_ranks: Seen, alone: tuple[bytes, Frames], task: str) -> None:
    frames = two_ranks.frames(task)
    assert seen_in(frames) == EXPECTED
    assert (frames == alone[1]).all()


def test_bfloat16_keeps_colour_shape_motion_and_background(single_thread: None) -> None:
    from turnout.engines.wan.load import make_engine

    engine = make_engine(EngineSetup(weights_of(T2V), Parallel(), dtype="bfloat16"))
    assert seen_in(finished(engine.begin(spec_of(T2V, ASKED), None))) == EXPECTED


def test_a_given_picture_stays_the_first_frame_and_moves_as_told(single_thread: None) -> None:
    from training.captions import prompts
    from training.checker import read
    from training.draw import draw, pack
    from training.fit_vae import psnr
    from training.shipped import Studio, as_png

    clip = next(clip for clip, _ in prompts(20, 3) if clip.things[0].motion == "still" and not clip.layout)
    first = as_png(draw(pack([clip]), 1)[0][0, 0])
    studio = Studio(TI2V)
    made = studio.render("it moves up", 2, first)
    assert psnr(made[0], studio.shown(first)) >= LEAST_FIRST_FRAME_DB
    (thing,) = read(made).things
    assert (thing.colour, thing.shape, thing.motion) == (clip.things[0].colour, clip.things[0].shape, "up")


def finished(rendering: Any) -> Frames:
    while rendering.step < rendering.of:
        rendering.advance()
    frames = whole_clip(rendering.decode())
    assert frames is not None
    return frames
