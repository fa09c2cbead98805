"""Which GPUs hold a model, from the headers of its files alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from turnout.engines.base import Parallel
from turnout.engines.wan.model_fit import (
    GIB,
    Clip,
    Mode,
    StoredModel,
    offered_clips,
    read_model_files,
    usual_modes,
    usual_spec,
    verdict,
)
from turnout.engines.wan.scaling_model import Workload, attended_s
from turnout.engines.wan.shape import DEFAULTS, WanShape
from turnout.fleet.family_rules import FAMILIES

SHAPE = WanShape("t2v", 40, 40, (1, 2, 2), 16, 8, 4, 0.875, 2, DEFAULTS["t2v"])
# As published: two experts of 14.3 billion numbers, 13.9 in the blocks' products, UMT5-XXL and a VAE.
A14B = StoredModel(SHAPE, 5120, 2 * 14_288_000_000, 2 * 13_900_000_000, 5_810_000_000, 68_600_000_000)
CLIPS = offered_clips(SHAPE)


def test_a_family_offers_one_clip_of_each_area() -> None:
    assert [clip.width * clip.height for clip in CLIPS] == sorted({c.width * c.height for c in CLIPS})
    assert CLIPS[-1].frames == 81 and Clip(1280, 720, 81) in CLIPS


def test_weights_are_what_was_measured() -> None:
    """On an H200 the gang of such a model left 68.9 of 139.2 GiB free, with 3.8 GiB of the last clip kept."""
    assert 63 < A14B.weight_bytes(Mode()) / GIB < 66
    assert A14B.weight_bytes(Mode(fp8=True)) < 0.62 * A14B.weight_bytes(Mode())
    sharded = Mode(Parallel(ulysses=4, cfg=2, fsdp=True))
    assert A14B.weight_bytes(sharded) < A14B.weight_bytes(Mode()) / 3


@pytest.mark.parametrize(
    ("mode", "gpus", "fits", "says"),
    [
        (Mode(), [140 * GIB], True, "; 81 frames of 624x624 (70 GiB), 832x480 (70 GiB), 1280x720 (75 GiB)"),
        (
            Mode(),
            [72 * GIB],
            True,
            "832x480 (70 GiB); with the idle expert in host memory 81 frames of 1280x720",
        ),
        (Mode(), [48 * GIB], True, "; not 1280x720"),
        (Mode(), [24 * GIB], False, "and a GPU has 24"),
        (Mode(fp8=True), [48 * GIB], True, "81 frames of 624x624"),
        (Mode(Parallel(2, 2, True)), [140 * GIB], False, "needs 4 GPUs, and 1 are here"),
        (Mode(Parallel(2, 2, True)), [48 * GIB] * 4, True, "1280x720"),
    ],
)
def test_the_verdict_names_sizes_and_reasons(mode: Mode, gpus: list[int], fits: bool, says: str) -> None:
    found = verdict(A14B, mode, CLIPS, gpus)
    assert found.fits is fits and says in found.words, found.words


def test_a_model_that_takes_any_size_is_judged_by_those_of_its_family() -> None:
    any_size = replace(FAMILIES["wan2.2-t2v-a14b"], sizes=(), max_pixels=10**8)
    assert offered_clips(SHAPE, any_size) == CLIPS
    assert offered_clips(SHAPE, replace(any_size, max_pixels=832 * 480)) == CLIPS[:-1]


def test_the_seconds_of_a_clip_have_its_steps_and_its_end_in_them() -> None:
    """Six steps of 832x480 with guidance, and with half of them guided, took 32.4 and 24.7 s over HTTP."""
    clip, spec = Clip(832, 480, 81), replace(usual_spec(FAMILIES["wan2.2-t2v-a14b"]), steps=6)
    assert A14B.clip_s(Mode(), clip, spec) == pytest.approx(32.4, rel=0.05)
    assert A14B.clip_s(Mode(), clip, replace(spec, guided_share=0.5)) == pytest.approx(24.7, rel=0.05)
    few = replace(spec, steps=4, guidance=(1.0, 1.0))
    assert A14B.clip_s(Mode(fp8=True), clip, few) < A14B.clip_s(Mode(), clip, few) < 13
    eight = Mode(fp8_attention=True)
    assert A14B.clip_s(eight, clip, spec) > 6 * A14B.step_s(eight, clip), "the first and last steps are exact"
    found = verdict(A14B, Mode(), CLIPS, [140 * GIB], usual_spec(FAMILIES["wan2.2-t2v-a14b"]))
    assert found.fits and "832x480 (70 GiB, 202 s)" in found.words, found.words


def test_modes_are_those_that_the_heads_allow() -> None:
    assert {mode.parallel.ulysses for mode in usual_modes(SHAPE)} == {1, 2, 4}


def test_files_are_counted_and_cut_ones_refused(shipped: Path) -> None:
    stored = read_model_files(shipped)
    files = [*shipped.glob("*/*.safetensors")]
    assert 0 < sum(f.stat().st_size for f in files) - stored.stored_bytes < 200_000, "headers alone"
    last = shipped / "transformer_2/diffusion_pytorch_model.safetensors"
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cut short"):
        read_model_files(shipped)
    (shipped / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    with pytest.raises(ValueError, match="not a Wan pipeline"):
        read_model_files(shipped)


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    import shutil

    from turnout.engines.wan.builtin import present_weights

    found = present_weights("builtin:wan-tiny-t2v", Path("unused"))
    assert found
    return Path(shutil.copytree(found, tmp_path / "model"))


@pytest.mark.parametrize(
    ("mode", "clip", "seconds"),
    [
        (Mode(), Clip(832, 480, 81), 5.05),
        (Mode(), Clip(1280, 720, 81), 19.8),
        (Mode(fp8=True), Clip(832, 480, 81), 4.04),
        (Mode(fp8=True), Clip(1280, 720, 81), 17.4),
        (Mode(fp8_attention=True), Clip(832, 480, 81), 4.41),
        (Mode(fp8_attention=True), Clip(1280, 720, 81), 15.97),
        (Mode(fp8=True, fp8_attention=True), Clip(832, 480, 81), 3.45),
        (Mode(fp8=True, fp8_attention=True), Clip(1280, 720, 81), 13.77),
    ],
)
def test_a_step_on_one_gpu_takes_what_was_measured(mode: Mode, clip: Clip, seconds: float) -> None:
    assert A14B.step_s(mode, clip) == pytest.approx(seconds, rel=0.02)


def test_more_gpus_are_faster_and_slow_links_cost() -> None:
    clip = Clip(832, 480, 81)
    steps = [A14B.step_s(Mode(Parallel(ulysses=n, cfg=2)), clip) for n in (1, 2, 4, 8)]
    assert steps == sorted(steps, reverse=True)
    work = Workload(32760, 5120, 40, 298_844_160)
    assert work.step_s(2, link=21e9) > 1.3 * work.step_s(2)
    assert work.step_s(2, link=21e9, pieces=4) == pytest.approx(0.76 * work.step_s(2, link=21e9), rel=0.01)


@pytest.mark.parametrize(
    ("attention_s", "sent_s", "pieces", "seconds"),
    [
        (8.0, 1.0, 1, 3 + 8 + 1),
        (8.0, 1.0, 2, 1.5 + 8 + 0.5),  # all but the first to come and the last to go is hidden
        (8.0, 100.0, 2, 400.0),  # all of attention is
        (4.0, 2.0, 2, 3 + 3 + 2 + 1),  # the second comes after the first was computed
    ],
)
def test_messages_are_under_way_while_a_piece_is_computed(
    attention_s: float, sent_s: float, pieces: int, seconds: float
) -> None:
    assert attended_s(attention_s, sent_s, pieces) == pytest.approx(seconds)
