"""How fast a model makes videos, as it is learned from those that it made, and what follows for others."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.engines.wan.scaling_model import relative_cost
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import VideoPart
from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.tasks.estimate_rules import Estimate, WorkAhead, estimate, wake_s
from turnout.tasks.pace_rules import (
    ExpectedTimes,
    Measured,
    PaceBook,
    expected,
    guided_forwards,
    kind_of,
    learned,
    measured,
)
from turnout.tasks.task_rules import Claimed, Event, Finished, GangId, Interrupted, Progressed, Result, Stage
from turnout.tasks.video_rules import LoraUse, VideoSpec

TINY = VideoPart(FAMILIES["wan-tiny-t2v"])
BIG = VideoPart(FAMILIES["wan2.2-t2v-a14b"])
SPEC = VideoSpec("a ball", "", 128, 128, 17, 8, 4, guidance=(4.0, 4.0), shift=5.0, seed=1)
P480 = replace(SPEC, width=832, height=480, frames=81, steps=40)
P720 = replace(P480, width=1280, height=720)
RESULT = Result("v", "t", "s", 1)


def story(
    spec: VideoSpec = SPEC, *, load_s: float = 0.0, first_s: float = 0.0, step_s: float = 2.0
) -> list[Event]:
    """The events of a video whose text takes 1 s and whose end 3 s."""
    at = 100.0
    events: list[Event] = [Claimed(at, 1, GangId("g"))]

    def say(stage: Stage, step: int, passed_s: float) -> None:
        nonlocal at
        at += passed_s
        events.append(Progressed(at, 1, stage, step, spec.steps))

    say(Stage.LOADING, 0, 0.0)
    say(Stage.ENCODING, 0, load_s)
    say(Stage.DENOISING, 0, 1.0)
    for step in range(1, spec.steps + 1):
        say(Stage.DENOISING, step, step_s + (first_s if step == 1 else 0.0))
    say(Stage.DECODING, spec.steps, 0.0)
    say(Stage.UPLOADING, spec.steps, 2.0)
    events.append(Finished(at + 1.0, 1, RESULT))
    return events


def test_the_stages_of_a_video_are_measured_by_its_reports() -> None:
    assert measured(story(), SPEC, TINY) == Measured(forward_s=1.0, encode_s=1.0, finish_s=3.0)
    cold = measured(story(load_s=20.0, first_s=7.0), SPEC, TINY)
    assert cold == Measured(1.0, 1.0, 3.0, load_s=20.0, warm_s=7.0), "a slow first step is no pace"


def test_only_the_attempt_that_made_it_is_measured_and_left_out_reports_do_no_harm() -> None:
    lost = story(step_s=50.0)[:5]
    again = story()
    del again[4:6]  # two steps in one report
    assert measured([*lost, Interrupted(90.0, 1, "died"), *again], SPEC, TINY) == Measured(1.0, 1.0, 3.0)
    told_nothing = [event for event in story() if not isinstance(event, Progressed)]
    assert measured(told_nothing, SPEC, TINY) is None
    assert measured(story()[:-1], SPEC, TINY) is not None, "the upload is short"


def test_guidance_counts_where_it_is_and_side_by_side_it_costs_nothing() -> None:
    half = replace(SPEC, guided_share=0.5)
    found = measured(story(half), half, TINY)
    assert found is not None and found.forward_s == pytest.approx(6 / 4), "the first step is not counted"
    side_by_side = replace(TINY, cfg=2)
    found = measured(story(), SPEC, side_by_side)
    assert found is not None and found.forward_s == 2.0
    few = replace(SPEC, guidance=(1.0, 1.0))
    found = measured(story(few), few, TINY)
    assert found is not None and found.forward_s == 2.0


def book_of(*made: tuple[VideoSpec, float], video: VideoPart = TINY) -> PaceBook:
    book = PaceBook()
    for spec, forward_s in made:
        book = learned(book, kind_of(spec, video), Measured(forward_s, 0.5, 3.0))
    return book


def test_a_kind_that_was_made_before_takes_as_long_again_with_any_number_of_steps() -> None:
    book = book_of((SPEC, 1.0))
    times = expected(book, SPEC, TINY)
    assert times is not None and times.seen
    assert times.render_s(SPEC) == 0.5 + 4 * 2 + 3
    assert times.render_s(replace(SPEC, steps=20, guided_share=0.5)) == 0.5 + 10 * 2 + 10 + 3
    assert expected(PaceBook(), SPEC, TINY) is None


def test_a_pace_follows_what_is_seen() -> None:
    book = book_of(*[(SPEC, 1.0)], *[(SPEC, 3.0)] * 12)
    times = expected(book, SPEC, TINY)
    assert times is not None and times.step_s == pytest.approx(3.0, rel=0.02)


def test_kinds_are_kept_apart_and_bounded() -> None:
    other = [
        replace(SPEC, width=256),
        replace(SPEC, frames=33),
        replace(SPEC, fp8=True),
        replace(SPEC, fp8_attention=True),
        replace(SPEC, step_cache=0.1),
        replace(SPEC, image="i"),
        replace(SPEC, loras=(LoraUse("few", 1.0),)),
    ]
    book = book_of((SPEC, 1.0), *((spec, 9.0) for spec in other))
    times = expected(book, SPEC, TINY)
    assert times is not None and times.step_s == 1.0
    many = book_of(*((replace(SPEC, frames=4 * n + 1), float(n)) for n in range(1, 100)))
    assert len(many.kinds) == 48
    assert many.kinds[0].kind.frames == 397, "those that were made last"


def test_what_a_gang_loads_is_learned_apart_from_its_pace() -> None:
    book = learned(PaceBook(), kind_of(SPEC, TINY), Measured(1.0, 0.5, 3.0, load_s=20.0, warm_s=7.0))
    book = learned(book, kind_of(SPEC, TINY), Measured(1.0, 0.5, 3.0))
    assert (book.load_s, book.warm_s) == (20.0, 7.0)
    asleep = ModelStatus(ModelState.STOPPED)
    assert wake_s(asleep, book) == 27
    assert wake_s(replace(asleep, wake_s=30.0), book) == 37, "the manager saw the whole of it"
    assert wake_s(ModelStatus(ModelState.STARTING, wake_s=30.0, for_s=25.0), book) == 12
    assert wake_s(ModelStatus(ModelState.STARTING, wake_s=30.0, for_s=99.0), book) == 7
    assert wake_s(ModelStatus(ModelState.READY, replicas=1, wake_s=30.0), book) == 0


@pytest.mark.parametrize(
    ("made", "seen_s", "asked", "took_s"),
    [
        # A14B on an H200 (docs/benchmarks.md): seconds of a forward.
        (P480, 2.505, P720, 9.81),
        (P720, 9.81, P480, 2.505),
        (P480, 2.505, replace(P480, fp8=True), 2.02),
        (P480, 2.505, replace(P720, fp8=True), 8.70),
        (P480, 2.505, replace(P720, fp8=True, fp8_attention=True), 6.87),
        (replace(P480, fp8=True, fp8_attention=True), 1.72, P720, 9.81),
    ],
)
def test_a_kind_never_made_is_scaled_by_what_was_measured_to_grow(
    made: VideoSpec, seen_s: float, asked: VideoSpec, took_s: float
) -> None:
    times = expected(book_of((made, seen_s), video=BIG), asked, BIG)
    assert times is not None and not times.seen
    assert times.step_s == pytest.approx(took_s, rel=0.15)


def test_between_two_kinds_that_were_made_their_own_growth_counts() -> None:
    """On a machine that is slower with long clips than the model on paper says."""
    long, short, between = (replace(SPEC, frames=frames) for frames in (65, 5, 33))
    book = book_of((short, 1.0), (long, 40.0))
    low, mid, high = (expected(book, spec, TINY) for spec in (short, between, long))
    assert low and mid and high
    assert low.step_s < mid.step_s < high.step_s
    alone = expected(book_of((short, 1.0)), between, TINY)
    assert alone is not None and alone.step_s < mid.step_s


@given(
    st.lists(st.integers(1, 200_000), min_size=2, max_size=5, unique=True), st.sampled_from([192, 3072, 5120])
)
def test_a_longer_clip_never_costs_less(sizes: list[int], width: int) -> None:
    costs = [relative_cost(tokens, width) for tokens in sorted(sizes)]
    assert all(shorter < longer for shorter, longer in pairwise(costs))


def test_a_line_takes_as_long_as_those_in_it() -> None:
    assert WorkAhead().wait_s(0, 1.0) == 0
    assert WorkAhead(running=[7.0]).wait_s(0, 1.0) == 7
    assert WorkAhead(running=[7.0], waiting=[1.0, 2.0, 100.0]).wait_s(2, 1.0) == 10
    assert WorkAhead(running=[7.0], gangs=2).wait_s(0, 1.0) == 0, "a gang is free"
    assert WorkAhead(running=[7.0, 3.0], waiting=[5.0, 5.0], gangs=2).wait_s(2, 1.0) == 8
    assert WorkAhead(waiting=[2.0] * 100, whole=False).wait_s(1000, 9.0) == 2000, "like the beginning"
    assert WorkAhead(waiting=[50.0]).wait_s(3, 2.0) == 50 + 2 * 26, "two came since"
    assert WorkAhead(running=[5.0, 1.0, 3.0], gangs=2).wait_s(0, 1.0) == 1, "one more than there are gangs"
    assert WorkAhead(waiting=[2.0, 4.0], gangs=2, whole=False).wait_s(6, 9.0) == 2 + 3 * 4 / 2
    assert WorkAhead(running=[7.0], whole=False).wait_s(3, 9.0) == 7, "nothing is known of the rest"


def test_an_estimate_is_the_wait_for_others_and_for_the_model_and_the_video_itself() -> None:
    times = ExpectedTimes(0.5, 2.0, 1.0, 3.0, seen=False)
    told = estimate(times, SPEC, WorkAhead(running=[7.0], waiting=[5.0]), 1, 20.0)
    assert told == Estimate(12.0, 20.0, 0.5 + 4 * 2 + 3, seen=False) and told.total_s == 43.5
    assert estimate(replace(times, seen=True), SPEC, WorkAhead(), 2, 0.0).wait_s == 2 * 11.5


def test_a_model_of_which_nothing_is_known_is_taken_to_wake_at_once() -> None:
    assert wake_s(ModelStatus(ModelState.STOPPED), PaceBook()) == 0
    assert wake_s(ModelStatus(ModelState.STARTING, for_s=5.0), PaceBook(load_s=20.0)) == 15
    assert wake_s(ModelStatus(ModelState.STOPPED, for_s=5.0), PaceBook(load_s=20.0)) == 20
    assert wake_s(ModelStatus(ModelState.READY), PaceBook(load_s=20.0, warm_s=7.0)) == 0
    assert wake_s(ModelStatus(ModelState.STARTING, replicas=1), PaceBook(load_s=20.0)) == 0


@pytest.mark.parametrize(
    ("share", "steps", "begin", "steps_s"),
    [(0.5, 4, 0, 6), (0.5, 4, 1, 4), (0.5, 4, 3, 1), (0.5, 4, 4, 0), (0.5, 4, 9, 0), (0.5, 5, 0, 8), (1.0, 4, 1, 6)],
)  # fmt: skip
def test_steps_that_are_left_take_as_long_as_their_guidance(
    share: float, steps: int, begin: int, steps_s: float
) -> None:
    times = ExpectedTimes(0.5, 2.0, 1.0, 3.0)
    assert times.steps_s(replace(SPEC, guided_share=share, steps=steps), begin) == steps_s


@pytest.mark.parametrize(
    ("guidance", "cfg", "forwards"),
    [
        ((4.0, 4.0), 1, 2),
        ((4.0, 4.0), 2, 1),
        ((1.0, 4.0), 1, 1.5),
        ((4.0, 1.0), 1, 1.5),
        ((1.0, 1.0), 1, 1),
        ((1.0, 1.0), 2, 1),
    ],
)
def test_guidance_of_one_is_none(guidance: tuple[float, float], cfg: int, forwards: float) -> None:
    assert guided_forwards(replace(SPEC, guidance=guidance), cfg) == forwards


def test_a_kind_never_made_begins_as_the_nearest_and_ends_by_its_pixels() -> None:
    times = expected(book_of((SPEC, 1.0)), replace(SPEC, width=256), TINY)
    assert times is not None and (times.encode_s, times.finish_s) == (0.5, pytest.approx(6.0))
    book = PaceBook()
    for frames, encode_s, finish_s in ((5, 1.0, 5.0), (65, 2.0, 130.0)):
        kind = kind_of(replace(SPEC, frames=frames), TINY)
        book = learned(book, kind, Measured(1.0, encode_s, finish_s))
    near = {frames: expected(book, replace(SPEC, frames=frames), TINY) for frames in (1, 9, 49, 97)}
    assert [times and times.encode_s for times in near.values()] == [1.0, 1.0, 2.0, 2.0]
    rates = [times.finish_s / frames for frames, times in near.items() if times is not None]
    assert rates[0] == pytest.approx(1.0) and rates[3] == pytest.approx(2.0), "beyond both, as at the nearest"
    assert 1.0 < rates[1] < rates[2] < 2.0


def test_where_two_kinds_took_what_the_paper_says_so_does_what_lies_between() -> None:
    short, between, long = (replace(SPEC, frames=frames) for frames in (5, 17, 65))
    by_one = book_of((short, 1.0))
    paper = [expected(by_one, spec, TINY) for spec in (between, long)]
    assert paper[0] and paper[1]
    both = expected(book_of((short, 1.0), (long, paper[1].step_s)), between, TINY)
    assert both is not None and both.step_s == pytest.approx(paper[0].step_s)


def test_kinds_with_the_same_options_tell_more_than_those_of_the_same_size() -> None:
    alike, other = replace(SPEC, width=256), replace(SPEC, fp8=True)
    times = expected(book_of((alike, 4.0), (other, 100.0)), SPEC, TINY)
    alone = expected(book_of((alike, 4.0)), SPEC, TINY)
    assert times == alone and times is not None and times.step_s < 4.0


def test_what_is_learned_moves_all_times_by_the_same_share_and_a_model_s_loading_too() -> None:
    kind = kind_of(SPEC, TINY)
    book = learned(PaceBook(), kind, Measured(1.0, 10.0, 100.0, load_s=20.0, warm_s=4.0))
    book = learned(book, kind, Measured(2.0, 20.0, 200.0, load_s=30.0, warm_s=14.0))
    (pace,) = book.kinds
    assert (pace.forward_s, pace.encode_s, pace.finish_s) == pytest.approx((1.3, 13.0, 130.0))
    assert (book.load_s, book.warm_s) == pytest.approx((23.0, 7.0))
