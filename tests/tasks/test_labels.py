"""Favourites and tags of videos, and which videos a search lets through."""

from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import make_task

from turnout.tasks.label_rules import Labels, VideoFilter, tidy, words_of
from turnout.tasks.task_rules import State


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (["fox", " #fox ", "## fox", "Fox"], ("fox", "Fox")),
        (["狐狸", "b", "a"], ("狐狸", "b", "a")),
        (["x" * 40], ("x" * 40,)),
        ([f"t{n}" for n in range(10)] + ["t0"], tuple(f"t{n}" for n in range(10))),
        ([], ()),
    ],
)
def test_each_tag_is_kept_once_and_without_its_mark(said: list[str], kept: tuple[str, ...]) -> None:
    assert tidy(said) == kept


@pytest.mark.parametrize("tag", ["", " ", "#", "two words", "x" * 41, "a\u0007b", "a\u3000b", "a\nb"])
def test_a_tag_is_one_word(tag: str) -> None:
    with pytest.raises(ValueError, match=r"^a tag is one word of at most 40 characters\.$"):
        tidy(["fox", tag])


def test_a_video_has_ten_tags_at_most() -> None:
    with pytest.raises(ValueError, match=r"^has more than 10 tags\.$"):
        tidy([f"t{n}" for n in range(11)])


def test_a_search_finds_what_all_of_it_holds_for() -> None:
    task = make_task(model="wan", steps=4)
    task = replace(task, spec=replace(task.spec, prompt="A Red FOX in the Straße"), state=State.COMPLETED)
    labels = Labels(favourite=True, tags=("night", "fox"))

    def found(search: VideoFilter, labels: Labels = labels) -> bool:
        return search.lets_through(task, labels)

    whole = VideoFilter(words_of(" FOX  red STRASSE "), "fox", True, "wan", State.COMPLETED)
    assert found(whole) and found(VideoFilter())
    others: list[dict[str, Any]] = [
        {"words": ("red", "cat")},
        {"tag": "day"},
        {"tag": "nigh"},
        {"model": "wan2"},
        {"status": State.FAILED},
    ]
    for other in others:
        assert not found(replace(whole, **other)), other
        assert not found(VideoFilter(**other)), other
    assert not found(whole, Labels(favourite=False, tags=labels.tags))
    assert not found(whole, Labels(favourite=True))
    assert found(VideoFilter(words=("red",)), Labels()), "what is not asked for does not matter"


def test_a_search_without_anything_is_known_as_one() -> None:
    assert VideoFilter(words_of("  ")).anything
    assert not VideoFilter(words_of("x")).anything and not VideoFilter(favourite=True).anything
