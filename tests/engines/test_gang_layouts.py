"""Real ranks over gloo: however a gang shares the work, the clip is the same, bit for bit.

Importing torch takes seconds in each process, so each size of gang is started once and does all its renders; what
it saw lies in a folder, and the tests below read it.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.gangs import Seen, once, run_gang

from turnout.tasks.video_rules import VideoSpec

SNAPSHOT_AT = 3

LAYOUTS = {
    2: {
        "ulysses": {"ulysses": 2},
        "cfg": {"cfg": 2},
        "ulysses-fsdp": {"ulysses": 2, "fsdp": True},
        "cfg-fsdp": {"cfg": 2, "fsdp": True},
        "ulysses-apart": {"ulysses": 2},
        "ulysses-fsdp-apart": {"ulysses": 2, "fsdp": True},
    },
    4: {
        "ulysses4": {"ulysses": 4},
        "ulysses-cfg": {"ulysses": 2, "cfg": 2},
        "ulysses-cfg-fsdp": {"ulysses": 2, "cfg": 2, "fsdp": True},
        "ulysses-cfg-apart": {"ulysses": 2, "cfg": 2},
    },
}
APART = ("ulysses-apart", "ulysses-fsdp-apart", "ulysses-cfg-apart")
"""Each rank on a machine of its own, so attention goes in pieces: the tiny model has two heads for each of two ranks."""

_BLOCK, _SHARE = "turnout.engines.wan.transformer:WanBlock", "turnout.engines.sequence:SequenceShare"
_CODEC = "turnout.engines.wan.codec:Codec"
# The tiny model has two blocks: the calls are in the second step, before, between and after its exchanges. In pieces:
# while the first one comes, while the second one comes, and while the first one goes back.
FULL = {
    "full-before": ("ulysses", 1, {"method": f"{_BLOCK}._qkv", "call": 7}),
    "full-between": ("ulysses", 0, {"method": f"{_SHARE}._send", "call": 10}),
    "full-after": ("ulysses", 1, {"method": f"{_BLOCK}._attend_to_text", "call": 8}),
    "full-coming": ("ulysses-apart", 1, {"method": f"{_SHARE}._received", "call": 17}),
    "full-following": ("ulysses-apart", 0, {"method": f"{_SHARE}._send", "call": 19}),
    "full-going": ("ulysses-apart", 1, {"method": f"{_SHARE}._send", "call": 24}),
    "full-guidance": ("cfg", 1, {"method": f"{_BLOCK}._feed_forward", "call": 3}),
    "full-decoding": ("cfg", 1, {"method": f"{_CODEC}._bytes", "call": 2}),
    "full-leader": ("ulysses", 0, {"method": f"{_CODEC}._bytes", "call": 2}),
}


@pytest.fixture(scope="session")
def two_ranks(
    tmp_path_factory: pytest.TempPathFactory, tiny: Callable[[str], Path], first_frame: bytes, engine: Any
) -> Seen:
    from tests.engines.conftest import SPEC

    def make(folder: Path) -> None:
        image, broken = folder / "first.png", folder / "broken.png"
        image.write_bytes(first_frame)
        broken.write_bytes(b"no image")
        alone = engine("t2v").begin(SPEC, None)
        for _ in range(SNAPSHOT_AT):
            alone.advance()
        checkpoint = folder / "alone.checkpoint"
        checkpoint.write_bytes(alone.snapshot())
        plain = {"spec": asdict(SPEC)}
        t2v, i2v, ti2v = ({**plain, "weights": str(tiny(kind))} for kind in ("t2v", "i2v", "ti2v"))
        ulysses, cfg = {"ulysses": 2}, {"cfg": 2}
        tasks = [
            *(
                {**t2v, "name": name, "parallel": layout, "snapshot_at": SNAPSHOT_AT, "apart": name in APART}
                for name, layout in LAYOUTS[2].items()
            ),
            {**i2v, "name": "i2v", "parallel": ulysses, "image": str(image)},
            {**ti2v, "name": "ti2v", "parallel": ulysses, "image": str(image)},
            {**t2v, "name": "resumed", "parallel": ulysses, "checkpoint": str(checkpoint), "apart": True},
            {
                **t2v,
                "name": "half-guided",
                "parallel": {"cfg": 2, "fsdp": True},
                "spec": asdict(replace(SPEC, guidance=(1.0, 4.0))),
            },
            {
                **t2v,
                "name": "fp8-attention",
                "parallel": ulysses,
                "spec": asdict(replace(SPEC, fp8_attention=True)),
            },
            {**i2v, "name": "broken-image", "parallel": cfg, "image": str(broken)},
            {
                **t2v,
                "name": "foreign-checkpoint",
                "parallel": cfg,
                "checkpoint": str(checkpoint),
                "spec": asdict(replace(SPEC, seed=8)),
            },
            {
                **t2v,
                "name": "odd-tokens",
                "parallel": ulysses,
                "spec": asdict(replace(SPEC, width=80, height=48)),
            },
            *(
                {
                    **t2v,
                    "name": name,
                    "parallel": LAYOUTS[2][layout],
                    "full": {"rank": rank, **full},
                    "apart": layout in APART,
                }
                for name, (layout, rank, full) in FULL.items()
            ),
            {**t2v, "name": "afterwards", "parallel": ulysses},
        ]
        run_gang(folder, 2, tasks)

    return Seen(once(tmp_path_factory, "two_ranks", make), 2)


@pytest.fixture(scope="session")
def four_ranks(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[[str], Path]) -> Iterator[Seen]:
    from tests.engines.conftest import SPEC

    def make(folder: Path) -> None:
        tasks = [
            {
                "name": name,
                "weights": str(tiny("t2v")),
                "parallel": layout,
                "spec": asdict(SPEC),
                "apart": name in APART,
            }
            for name, layout in LAYOUTS[4].items()
        ]
        run_gang(folder, 4, tasks)

    yield Seen(once(tmp_path_factory, "four_ranks", make), 4)


def assert_every_rank_has(expected: Any, latents: list[Any]) -> None:
    assert [each.equal(expected) for each in latents] == [True] * len(latents)


@pytest.mark.parametrize("layout", LAYOUTS[2])
def test_two_ranks_yield_the_latents_of_one(
    two_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec, layout: str
) -> None:
    assert_every_rank_has(finish(engine("t2v").begin(spec, None)), two_ranks.latents(layout))


def test_two_ranks_with_fp8_attention_yield_the_latents_of_one(
    two_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec
) -> None:
    alone = finish(engine("t2v").begin(replace(spec, fp8_attention=True), None))
    assert_every_rank_has(alone, two_ranks.latents("fp8-attention"))


@pytest.mark.parametrize("layout", LAYOUTS[4])
def test_four_ranks_yield_the_latents_of_one(
    four_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec, layout: str
) -> None:
    assert_every_rank_has(finish(engine("t2v").begin(spec, None)), four_ranks.latents(layout))


def test_attention_in_pieces_has_the_bits_of_one_rank(two_ranks: Seen, four_ranks: Seen) -> None:
    for seen in (two_ranks, four_ranks):
        assert [set(report.values()) for report in seen.reports("pieces")] == [{True}] * seen.ranks


def test_only_ranks_that_share_a_sequence_between_machines_divide_it(
    two_ranks: Seen, four_ranks: Seen
) -> None:
    for seen, layout in (
        (two_ranks, "ulysses"),
        (two_ranks, "ulysses-apart"),
        (four_ranks, "ulysses-cfg-apart"),
    ):
        assert [report["apart"] for report in seen.reports(layout)] == [layout in APART] * seen.ranks


@pytest.mark.parametrize("kind", ["i2v", "ti2v"])
def test_ranks_share_a_first_frame_that_only_one_was_given(
    two_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec, first_frame: bytes, kind: str
) -> None:
    assert_every_rank_has(finish(engine(kind).begin(spec, first_frame)), two_ranks.latents(kind))


def test_two_ranks_resume_what_one_began(two_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec) -> None:
    assert [report["began"] for report in two_ranks.reports("resumed")] == [SNAPSHOT_AT] * 2
    assert_every_rank_has(finish(engine("t2v").begin(spec, None)), two_ranks.latents("resumed"))


@pytest.mark.parametrize("layout", LAYOUTS[2])
def test_one_rank_resumes_what_two_began(
    two_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec, layout: str
) -> None:
    resumed = engine("t2v").resume(spec, two_ranks.checkpoint(layout))
    assert resumed.step == SNAPSHOT_AT
    assert_every_rank_has(finish(resumed), two_ranks.latents(layout))


def test_ranks_agree_where_only_one_stage_is_guided(
    two_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec
) -> None:
    alone = finish(engine("t2v").begin(replace(spec, guidance=(1.0, 4.0)), None))
    assert_every_rank_has(alone, two_ranks.latents("half-guided"))


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("broken-image", "Unrenderable"),
        ("foreign-checkpoint", "CheckpointRefused"),
        ("odd-tokens", "Unrenderable"),
    ],
)
def test_refusal_reaches_every_rank(two_ranks: Seen, task: str, error: str) -> None:
    first, second = two_ranks.reports(task)
    assert first == second
    assert first["refused"] == error


@pytest.mark.parametrize("task", FULL)
def test_memory_that_runs_out_on_one_rank_fails_the_task_on_all(two_ranks: Seen, task: str) -> None:
    first, second = two_ranks.reports(task)
    assert first == second
    assert first["refused"] == "Unrenderable"
    assert "frames of 48x32 would fit" in first["message"]


def test_the_gang_renders_after_memory_ran_out(
    two_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec
) -> None:
    assert_every_rank_has(finish(engine("t2v").begin(spec, None)), two_ranks.latents("afterwards"))


@pytest.mark.parametrize("layout", [*LAYOUTS[2], *LAYOUTS[4]])
def test_ranks_that_decode_a_band_each_make_the_frames_of_one(
    two_ranks: Seen, four_ranks: Seen, engine: Any, finish: Any, spec: VideoSpec, layout: str
) -> None:
    alone = engine("t2v").begin(spec, None)
    finish(alone)
    seen = two_ranks if layout in LAYOUTS[2] else four_ranks
    assert np.array_equal(seen.frames(layout), list(alone.decode()))


def test_only_rank_zero_holds_the_text_encoder_and_the_clip(two_ranks: Seen, spec: VideoSpec) -> None:
    first, second = two_ranks.reports("ulysses")
    assert (first["holds_text"], second["holds_text"]) == (True, False)
    assert (first["decoded"], second["decoded"]) == ([spec.frames, spec.height, spec.width, 3], None)


def test_fsdp_leaves_each_rank_its_share_of_the_weights(two_ranks: Seen, four_ranks: Seen) -> None:
    for seen, layout in [
        (two_ranks, "ulysses-fsdp"),
        (two_ranks, "cfg-fsdp"),
        (four_ranks, "ulysses-cfg-fsdp"),
    ]:
        shares = [report["held_share"] for report in seen.reports(layout)]
        assert sum(shares) == pytest.approx(1.0)
        assert max(shares) < 1.2 / seen.ranks
    assert [report["held_share"] for report in two_ranks.reports("ulysses")] == [1.0, 1.0]
