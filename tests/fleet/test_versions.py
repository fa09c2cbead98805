"""Versions of a model: each gets its share of what is asked of the name, and nothing else changes for anybody."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fleet.core_world import Box, World, model, routes

from turnout.errors import InvalidRequest, Misconfigured
from turnout.fleet.change_rules import publication
from turnout.fleet.events_and_commands import ModelRemoved, ModelSet
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Version, VideoPart
from turnout.fleet.version_rules import VersionShare, check_version, choose_version, versions_of
from turnout.run.config import load

BASE = model("qwen")
NEXT = replace(model("qwen-next"), version=Version("qwen", 0.25))
CLIPS = Model("clips", EngineKind.VIDEO, "w", video=VideoPart(FAMILIES["wan-tiny-t2v"]))

ITSELF = "qwen-next is a version itself: name the model that it is a version of."
UNLIKE = "one makes videos, one does not."

shares = st.lists(st.floats(0, 1), max_size=4).filter(lambda given: sum(given) <= 1)


def everybody(_: str) -> bool:
    return True


@given(shares, st.binary(max_size=40), st.sets(st.sampled_from("abcd")))
def test_whoever_answers_can_serve_and_is_the_same_for_the_same_asker(
    given_shares: list[float], asker: bytes, broken: set[str]
) -> None:
    versions = [VersionShare(name, share) for name, share in zip("abcd", given_shares, strict=False)]
    chosen = choose_version("m", versions, asker, lambda name: name not in broken)
    assert chosen == "m" or (chosen in {v.model for v in versions if v.share} and chosen not in broken)
    assert chosen == choose_version("m", versions, asker, lambda name: name not in broken)
    if chosen != "m":
        assert choose_version("m", versions, asker, everybody) == chosen, "what is broken moves nobody else"


@given(st.floats(0, 1), st.floats(0, 1), st.binary(max_size=40))
def test_a_growing_share_takes_nobody_away_from_the_version(one: float, other: float, asker: bytes) -> None:
    small, large = sorted((one, other))
    if choose_version("m", [VersionShare("next", small)], asker, everybody) == "next":
        assert choose_version("m", [VersionShare("next", large)], asker, everybody) == "next"


def test_shares_are_kept_over_many_askers() -> None:
    versions = [VersionShare("a", 0.1), VersionShare("b", 0.3)]
    chosen = [choose_version("m", versions, b"%d" % n, everybody) for n in range(10_000)]
    parts = {name: chosen.count(name) / len(chosen) for name in ("a", "b", "m")}
    assert parts == pytest.approx({"a": 0.1, "b": 0.3, "m": 0.6}, abs=0.02)


@pytest.mark.parametrize(
    ("wrong", "param", "said"),
    [
        (replace(BASE, version=Version(None, 0.5)), "share", "share goes with version_of."),
        (replace(NEXT, version=Version("gone", 0.5)), "version_of", "There is no model gone."),
        (replace(NEXT, version=Version("qwen-next", 0.5)), "version_of", ITSELF),
        (replace(model("c"), version=Version("qwen-next", 0.5)), "version_of", ITSELF),
        (replace(BASE, version=Version("clips", 0.5)), "version_of", "qwen has versions: it cannot be one."),
        (
            replace(CLIPS, version=Version("qwen", 0.5)),
            "version_of",
            f"clips cannot be a version of qwen: {UNLIKE}",
        ),
        (replace(CLIPS, name="qwen"), "version_of", f"qwen-next cannot be a version of qwen: {UNLIKE}"),
        (
            replace(model("c"), version=Version("qwen", 0.76)),
            "share",
            "The versions of qwen would have 1.01 of it: at most 1.",
        ),
    ],
)
def test_a_version_that_makes_no_sense_is_refused(wrong: Model, param: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_version(wrong, (BASE, NEXT, CLIPS))
    assert (refused.value.message, refused.value.param, refused.value.code) == (said, param, "invalid_value")
    for sound in (BASE, NEXT, CLIPS, replace(model("c"), version=Version("qwen", 0.75))):
        check_version(sound, (BASE, NEXT, CLIPS))


def test_shares_that_make_one_whole_are_taken_however_they_are_rounded() -> None:
    thirds = [
        replace(model(name), version=Version("qwen", share))
        for name, share in zip("abc", (0.7, 0.2, 0.1), strict=True)
    ]
    check_version(thirds[0], (BASE, *thirds[1:]))
    every = (BASE, NEXT, *thirds[:1])
    assert versions_of("qwen", every) == (VersionShare("a", 0.7), VersionShare("qwen-next", 0.25))
    assert versions_of("clips", every) == ()


def test_a_file_with_a_version_of_nothing_is_refused_by_the_models_name() -> None:
    chat = {"engine": "llamacpp", "weights": "w.gguf"}
    said = {"qwen": chat, "next": {**chat, "version_of": "qwen", "share": 0.1}}
    models = load({"models": said}, {}).config.models
    assert versions_of("qwen", models) == (VersionShare("next", 0.1),)
    with pytest.raises(Misconfigured, match=r"models.next: There is no model qwen"):
        load({"models": {"next": said["next"]}}, {})


def test_gateways_hear_of_a_changed_share_and_no_replica_is_replaced() -> None:
    world = World(Box(WorkerId("w1")), models=[BASE, NEXT])
    world.ask("qwen-next", waiting=1)
    world.ticks(6)
    (replica,) = (r.id for r in world.ready("qwen-next"))
    assert routes(world.fleet)["qwen"].versions == (VersionShare("qwen-next", 0.25),)
    before = world.fleet
    world.feed(ModelSet(replace(NEXT, version=Version("qwen", 0.5))))
    told = publication(before, world.fleet, None, with_history=False)
    assert told is not None and (published := told.routes["qwen"]) is not None
    assert published.versions == (VersionShare("qwen-next", 0.5),)
    world.ticks(6)
    assert [r.id for r in world.ready("qwen-next")] == [replica], "the same one serves on"
    before = world.fleet
    world.feed(ModelRemoved("qwen-next"))
    told = publication(before, world.fleet, None, with_history=False)
    assert told is not None and (published := told.routes["qwen"]) is not None and not published.versions
