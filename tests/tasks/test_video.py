"""What a model can make: every rule has its exact words."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import InvalidRequest
from turnout.fleet.family_rules import FAMILIES
from turnout.tasks.video_rules import (
    Lora,
    LoraUse,
    RequestedVideo,
    VideoSpec,
    lossy,
    seconds_of,
    settle,
    tokens,
)

A14B = FAMILIES["wan2.2-t2v-a14b"]
B5 = FAMILIES["wan2.2-ti2v-5b"]
TINY = FAMILIES["wan-tiny-t2v"]


@pytest.mark.parametrize(
    ("wish", "param", "message"),
    [
        (RequestedVideo(" "), "prompt", "prompt must not be empty."),
        (RequestedVideo("x" * 4001), "prompt", "prompt is over 4000 characters."),
        (
            RequestedVideo("x", negative_prompt="y" * 4001),
            "negative_prompt",
            "negative_prompt is over 4000 characters.",
        ),
        (RequestedVideo("x", size="wide"), "size", "size must look like 128x128."),
        (RequestedVideo("x", size="128x"), "size", "size must look like 128x128."),
        (RequestedVideo("x", size="\u0661\u0662\u0668x128"), "size", "size must look like 128x128."),
        (RequestedVideo("x", size="1280000x128"), "size", "size 1280000x128 is too large."),
        (
            RequestedVideo("x", size="100x128"),
            "size",
            "width and height must be multiples of 16; got 100x128.",
        ),
        (RequestedVideo("x", size="0x128"), "size", "width and height must be multiples of 16; got 0x128."),
        (RequestedVideo("x", size="1280x720"), "size", "size 1280x720 is over this model's 65536 pixels."),
        (
            RequestedVideo("x", guided_share=0.4),
            "guided_share",
            "guided_share must be from 0.5 to 1; got 0.4.",
        ),
        (RequestedVideo("x", frames=16), "frames", "frames must be 4n+1 and at most 65; got 16."),
        (RequestedVideo("x", frames=69), "frames", "frames must be 4n+1 and at most 65; got 69."),
        (RequestedVideo("x", frames=17, seconds=2), "frames", "give seconds or frames, not both."),
        (RequestedVideo("x", seconds=9), "seconds", "seconds must be above 0 and at most 8 at 8 fps."),
        (RequestedVideo("x", seconds=0), "seconds", "seconds must be above 0 and at most 8 at 8 fps."),
        (
            RequestedVideo("x", seconds=float("nan")),
            "seconds",
            "seconds must be above 0 and at most 8 at 8 fps.",
        ),
        (RequestedVideo("x", fps=0), "fps", "fps must be from 1 to 60; got 0."),
        (RequestedVideo("x", steps=101), "steps", "steps must be from 1 to 100; got 101."),
        (RequestedVideo("x", seed=-1), "seed", "seed must be from 0 to 4294967295; got -1."),
        (RequestedVideo("x", shift=0), "shift", "shift must be from 0.1 to 100; got 0."),
        (
            RequestedVideo("x", guidance=[1, 2, 3]),
            "guidance",
            "guidance must be one number or two (low noise, high noise), each from 0 to 50.",
        ),
        (
            RequestedVideo("x", guidance=[float("nan")]),
            "guidance",
            "guidance must be one number or two (low noise, high noise), each from 0 to 50.",
        ),
        (RequestedVideo("x", image="k"), "input_reference", "this model draws from words alone."),
    ],
)
def test_a_bad_value_is_refused_by_name(wish: RequestedVideo, param: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        settle(wish, TINY, ulysses=2, seed=1)
    assert (refused.value.param, refused.value.message) == (param, message)
    other = {
        "input_reference": "unsupported",
        "prompt": "string_too_long",
        "negative_prompt": "string_too_long",
    }
    assert refused.value.code == (other[param] if param in other and wish.prompt != " " else "invalid_value")


@pytest.mark.parametrize(
    "wish",
    [
        RequestedVideo("x" * 4000, negative_prompt="y" * 4000),
        RequestedVideo("x", size="256x256"),
        RequestedVideo("x", size="16x16"),
        RequestedVideo("x", frames=65),
        RequestedVideo("x", seconds=8),
        RequestedVideo("x", seconds=64 / 60, fps=60),
        RequestedVideo(
            "x", fps=1, steps=1, seed=0, shift=0.1, guidance=[0, 0], guided_share=0.5, step_cache=0
        ),
        RequestedVideo(
            "x", fps=60, steps=100, seed=2**32 - 1, shift=100, guidance=[50], guided_share=1, step_cache=0.2
        ),
    ],
)
def test_what_is_asked_for_at_the_edge_is_made(wish: RequestedVideo) -> None:
    made = settle(wish, TINY, ulysses=1, seed=1)
    for name in ("fps", "steps", "seed", "shift", "guided_share", "step_cache", "frames"):
        assert getattr(wish, name) in (None, getattr(made, name)), name
    assert wish.size in (None, f"{made.width}x{made.height}")
    assert wish.guidance is None or made.guidance == (wish.guidance[0], wish.guidance[-1])


def test_what_is_not_asked_for_is_the_models() -> None:
    rules = replace(
        TINY, negative_prompt="blurry", fps=24, steps=7, guidance=(2.0, 3.0), shift=6.0, guided_share=0.8,
        step_cache=0.05, default_size="64x32", default_frames=9,
    )  # fmt: skip
    assert settle(RequestedVideo("a ball"), rules, ulysses=1, seed=9, fp8=True) == VideoSpec(
        "a ball", "blurry", 64, 32, 9, 24, 7, (2.0, 3.0), 6.0, 9, guided_share=0.8, step_cache=0.05, fp8=True
    )


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (RequestedVideo("x", size="99984x16"), "size 99984x16 is over this model's 65536 pixels."),
        (RequestedVideo("x", size="16x100000"), "size 16x100000 is too large."),
        (RequestedVideo("x", size="16x16x16"), "size must look like 128x128."),
        (RequestedVideo("x", size="16x0"), "width and height must be multiples of 16; got 16x0."),
        (RequestedVideo("x", size="16x24"), "width and height must be multiples of 16; got 16x24."),
        (RequestedVideo("x", size="272x256"), "size 272x256 is over this model's 65536 pixels."),
        (RequestedVideo("x", frames=0), "frames must be 4n+1 and at most 65; got 0."),
        (RequestedVideo("x", seconds=8.1), "seconds must be above 0 and at most 8 at 8 fps."),
        (RequestedVideo("x", fps=61), "fps must be from 1 to 60; got 61."),
        (RequestedVideo("x", steps=0), "steps must be from 1 to 100; got 0."),
        (RequestedVideo("x", seed=2**32), "seed must be from 0 to 4294967295; got 4294967296."),
        (RequestedVideo("x", shift=100.5), "shift must be from 0.1 to 100; got 100.5."),
        (RequestedVideo("x", guided_share=1.1), "guided_share must be from 0.5 to 1; got 1.1."),
        (RequestedVideo("x", step_cache=-0.1), "step_cache must be from 0 to 0.2; got -0.1."),
        (RequestedVideo("x", guidance=[]), "guidance must be one number or two (low noise, high noise), each from 0 to 50."),
        (RequestedVideo("x", guidance=[1, -1]), "guidance must be one number or two (low noise, high noise), each from 0 to 50."),
        (RequestedVideo("x", guidance=[51, 1]), "guidance must be one number or two (low noise, high noise), each from 0 to 50."),
    ],
)  # fmt: skip
def test_what_is_just_over_the_edge_is_not(wish: RequestedVideo, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        settle(wish, TINY, ulysses=1, seed=1)
    assert (refused.value.message, refused.value.code) == (says, "invalid_value")


def test_a_size_that_is_not_offered_names_those_that_are() -> None:
    with pytest.raises(
        InvalidRequest, match=r"^size 128x128 is not offered; allowed: 832x480, 480x832, 624x624, 1280x720"
    ) as refused:
        settle(RequestedVideo("x", size="128x128"), A14B, ulysses=1, seed=1)
    assert (refused.value.param, refused.value.code) == ("size", "invalid_value")


def test_an_image_model_asks_for_its_image() -> None:
    with pytest.raises(
        InvalidRequest, match=r"^this model animates a given image: input_reference is required\.$"
    ) as refused:
        settle(RequestedVideo("x"), FAMILIES["wan2.2-i2v-a14b"], ulysses=1, seed=1)
    assert (refused.value.param, refused.value.code) == ("input_reference", "missing")


def test_one_frame_is_a_video() -> None:
    assert settle(RequestedVideo("x", frames=1), TINY, ulysses=1, seed=1).frames == 1


def test_a_length_that_the_gang_cannot_split_is_refused() -> None:
    # 5 latent frames × 9 × 9 patches is odd: two ranks cannot share it.
    with pytest.raises(
        InvalidRequest,
        match=r"^144x144 with 17 frames gives 405 tokens, which this model's gang cannot split 2 ways; choose another size or length\.$",
    ):
        settle(RequestedVideo("x", size="144x144"), TINY, ulysses=2, seed=1)
    with pytest.raises(
        InvalidRequest, match="320 tokens, which this model's gang cannot split 5 ways"
    ) as refused:
        settle(RequestedVideo("x", size="128x128"), replace(TINY, heads=4), ulysses=5, seed=1)
    assert (refused.value.param, refused.value.code) == ("size", "invalid_value")


def test_published_token_counts_hold() -> None:
    assert tokens(832, 480, 81, A14B) == 32_760
    assert tokens(1280, 720, 81, A14B) == 75_600
    assert tokens(1280, 704, 121, B5) == 27_280
    assert [tokens(16, 16, frames, TINY) for frames in (1, 2, 4, 5, 9)] == [1, 1, 1, 2, 3]


@given(st.floats(0.2, 8.0))
def test_seconds_give_legal_frames(seconds: float) -> None:
    spec = settle(RequestedVideo("x", seconds=seconds), TINY, ulysses=1, seed=1)
    assert (spec.frames - 1) % 4 == 0
    assert 1 < spec.frames <= TINY.max_frames
    assert abs((spec.frames - 1) / spec.fps - seconds) <= 0.5


def test_seconds_are_written_as_the_dialect_writes_them() -> None:
    assert seconds_of(settle(RequestedVideo("x", seconds=2), TINY, ulysses=1, seed=1)) == "2"
    assert seconds_of(settle(RequestedVideo("x", frames=5), TINY, ulysses=1, seed=1)) == "0.5"
    assert seconds_of(settle(RequestedVideo("x", frames=5, fps=16), TINY, ulysses=1, seed=1)) == "0.25"
    assert seconds_of(settle(RequestedVideo("x", frames=5, fps=3), TINY, ulysses=1, seed=1)) == "1.33"


def test_what_is_given_up_for_speed_is_told_with_its_error() -> None:
    exact = settle(RequestedVideo("x"), TINY, ulysses=1, seed=1)
    assert lossy(exact) == {} and (exact.guided_share, exact.fp8) == (1.0, False)
    fast = settle(RequestedVideo("x", guided_share=0.75), TINY, ulysses=1, seed=1, fp8=True)
    assert set(lossy(fast)) == {"fp8", "guided_share"}
    assert "2.3 %" in lossy(fast)["fp8"] and "36 dB" in lossy(fast)["guided_share"]
    assert (
        "another shape"
        in lossy(settle(RequestedVideo("x", guided_share=0.5), TINY, ulysses=1, seed=1))["guided_share"]
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"guided_share": 0.99}, {"guided_share": "36 dB"}),
        ({"guided_share": 0.75}, {"guided_share": "36 dB"}),
        ({"guided_share": 0.74}, {"guided_share": "another shape"}),
        ({"guided_share": 1.0}, {}),
        ({"step_cache": 0.01}, {"step_cache": "50 dB"}),
        ({"step_cache": 0.05}, {"step_cache": "50 dB"}),
        ({"step_cache": 0.06}, {"step_cache": "42 dB"}),
        ({"step_cache": 0.2}, {"step_cache": "33 dB"}),
        ({"step_cache": 0.0}, {}),
    ],
)
def test_the_more_is_given_up_the_more_is_told(asked: dict[str, Any], told: dict[str, str]) -> None:
    found = lossy(settle(RequestedVideo("x", **asked), TINY, ulysses=1, seed=1))
    assert set(found) == set(told)
    assert all(said in found[name] for name, said in told.items())


def test_fp8_attention_is_the_models_unless_the_request_says_otherwise() -> None:
    of_model = settle(RequestedVideo("x"), TINY, ulysses=1, seed=1, fp8_attention=True)
    assert of_model.fp8_attention and "2.4 % off fp32" in lossy(of_model)["fp8_attention"]
    asked = settle(RequestedVideo("x", fp8_attention=True), TINY, ulysses=1, seed=1)
    assert asked == of_model
    refused = settle(RequestedVideo("x", fp8_attention=False), TINY, ulysses=1, seed=1, fp8_attention=True)
    assert refused == settle(RequestedVideo("x"), TINY, ulysses=1, seed=1)


def test_published_models_have_their_published_negative_prompt() -> None:
    spec = settle(RequestedVideo("x"), A14B, ulysses=1, seed=1)
    assert spec.negative_prompt.startswith("色调艳丽") and spec.negative_prompt.endswith("倒着走")
    assert B5.negative_prompt == A14B.negative_prompt and TINY.negative_prompt == ""
    assert settle(RequestedVideo("x", negative_prompt=""), A14B, ulysses=1, seed=1).negative_prompt == ""


FAST = Lora("fast", "/fast", steps=4, guidance=(1.0, 1.0), shift=5.0, euler=True)
STYLE = Lora("style", "/style", strength=0.5)


def with_loras(*names: str, usual: tuple[str, ...] = (), wish: RequestedVideo | None = None) -> VideoSpec:
    asked = replace(wish or RequestedVideo("x"), loras=names or None)
    return settle(asked, TINY, ulysses=1, seed=1, loras=(FAST, STYLE), usual_loras=usual)


def test_a_distilled_adapter_brings_its_schedule_and_is_said_to_be_lossy() -> None:
    spec = with_loras("fast", "style:0.8")
    assert spec.loras == (LoraUse("fast", 1.0, True), LoraUse("style", 0.8))
    assert (spec.steps, spec.guidance, spec.shift, spec.euler) == (4, (1.0, 1.0), 5.0, True)
    assert "fast: 4 steps" in lossy(spec)["loras"]
    asked = with_loras("fast", wish=RequestedVideo("x", steps=6))
    assert asked.steps == 6, "what is asked for counts"
    plain = with_loras("style")
    assert (plain.steps, plain.euler, lossy(plain)) == (TINY.steps, False, {})


def test_the_usual_adapters_are_those_of_requests_that_name_none() -> None:
    assert with_loras(usual=("style",)).loras == (LoraUse("style", 0.5),)
    none = settle(
        RequestedVideo("x", loras=[]), TINY, ulysses=1, seed=1, loras=(STYLE,), usual_loras=["style"]
    )
    assert none.loras == ()


def test_an_adapter_s_strength_is_its_own_or_the_one_that_is_asked_for() -> None:
    given = [with_loras(f"style:{strength}").loras[0].strength for strength in ("-4", "4", "0", "")]
    assert given == [-4.0, 4.0, 0.0, 0.5]
    later = Lora("later", "/later", steps=8, shift=3.0)
    spec = settle(RequestedVideo("x", loras=["fast", "later"]), TINY, ulysses=1, seed=1, loras=(FAST, later))
    assert (spec.steps, spec.guidance, spec.shift) == (8, (1.0, 1.0), 3.0), "the last that has any decides"
    assert "fast, later: 8 steps" in lossy(spec)["loras"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("other",), "'other' is no adapter, or named twice; allowed: fast, style."),
        (("style", "style:0.8"), "'style:0.8' is no adapter, or named twice; allowed: fast, style."),
        (("x" * 101,), f"'{'x' * 100}' is no adapter, or named twice; allowed: fast, style."),
        (("style:4.1",), "an adapter's strength is from -4 to 4."),
        (("style:-4.1",), "an adapter's strength is from -4 to 4."),
        (("style:nan",), "an adapter's strength is from -4 to 4."),
    ],
)
def test_a_wrong_adapter_is_told_what_may_be_named(names: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        with_loras(*names)
    assert (refused.value.message, refused.value.param, refused.value.code) == (
        says,
        "loras",
        "invalid_value",
    )


@pytest.mark.parametrize("name", ["other", "/style", "style:much", "style:nan", "style:5", ""])
def test_only_declared_adapters_may_be_named(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        with_loras(name or "style", *([] if name else ["style"]))
    assert (caught.value.param, caught.value.code) == ("loras", "invalid_value")
    with pytest.raises(InvalidRequest, match=r"named twice; this model has none\.$"):
        settle(RequestedVideo("x", loras=["style"]), TINY, ulysses=1, seed=1)


def test_step_caching_is_bounded_and_its_error_told() -> None:
    spec = settle(RequestedVideo("x", step_cache=0.1), TINY, ulysses=1, seed=1)
    assert "42 dB" in lossy(spec)["step_cache"]
    with pytest.raises(InvalidRequest, match=r"step_cache must be from 0 to 0\.2"):
        settle(RequestedVideo("x", step_cache=0.3), TINY, ulysses=1, seed=1)
