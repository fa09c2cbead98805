"""What a conversation must stay within to be kept."""

import pytest

from turnout.chat.conversation_rules import (
    ConversationRoom,
    KeptConversation,
    check_kept,
    check_tree,
    folded,
    no_such_conversation,
    room_of,
)
from turnout.errors import Conflict, InvalidRequest, TooLarge

ROOM = ConversationRoom(most=2, together_bytes=100)


def kept(name: str, revision: int = 1, size: int = 10) -> KeptConversation:
    return KeptConversation(name, revision, "Talk", None, 0.0, 0.0, size, "o")


def test_guests_have_little_room_and_others_as_much_as_the_operator_says() -> None:
    assert room_of(guest=True, most=200) == ConversationRoom(20, 4 * 2**20)
    assert room_of(guest=True, most=5).most == 5
    assert room_of(guest=False, most=200) == ConversationRoom(200, 256 * 2**20)


@pytest.mark.parametrize("revision", [0, 1, 2, 4])
def test_only_the_next_revision_of_what_is_kept_is_taken(revision: int) -> None:
    with pytest.raises(Conflict, match=r"^The conversation was changed meanwhile\.$") as refusal:
        check_kept([kept("a", 9), kept("b", 2)], kept("b", revision), ROOM)
    assert (refusal.value.param, refusal.value.code) == ("revision", "conversation_changed")
    check_kept([kept("a", 9), kept("b", 2)], kept("b", 3), ROOM)


def test_a_new_one_begins_with_revision_one_where_there_is_a_place() -> None:
    check_kept([], kept("a"), ROOM)
    check_kept([kept("a")], kept("b"), ROOM)
    with pytest.raises(Conflict) as refusal:
        check_kept([], kept("a", 2), ROOM)
    assert refusal.value.code == "conversation_changed", "it was deleted meanwhile"
    with pytest.raises(Conflict, match=r"^There are 2 conversations already: delete some\.$") as refusal:
        check_kept([kept("a"), kept("b")], kept("c"), ROOM)
    assert refusal.value.code == "too_many_conversations"
    check_kept([kept("a"), kept("b")], kept("b", 2), ROOM)


def test_all_of_an_owners_fit_together() -> None:
    others = [kept("a", size=40), kept("b", size=60)]
    check_kept(others, kept("b", 2, 60), ROOM)
    with pytest.raises(TooLarge, match=r"^There is no room for more in this conversation\.$") as refusal:
        check_kept(others, kept("b", 2, 61), ROOM)
    assert refusal.value.code == "conversation_too_large"


@pytest.mark.parametrize(
    ("messages", "leaf", "param", "says"),
    [
        ([("a", "b")], None, "messages", "Each message follows its parent, once."),
        ([("a", None), ("a", None)], None, "messages", "Each message follows its parent, once."),
        ([("a", "a")], None, "messages", "Each message follows its parent, once."),
        ([("a", None)], "b", "leaf", "leaf is one of the messages."),
        ([], "a", "leaf", "leaf is one of the messages."),
    ],
)
def test_a_loose_end_is_named(
    messages: list[tuple[str, str | None]], leaf: str | None, param: str, says: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        check_tree(messages, leaf)
    assert (refusal.value.message, refusal.value.param, refusal.value.code) == (says, param, "invalid_value")


def test_a_tree_may_branch_and_have_several_roots() -> None:
    check_tree([("a", None), ("b", "a"), ("c", "a"), ("d", None)], "b")
    check_tree([], None)


def test_a_search_knows_neither_case_nor_how_many_spaces() -> None:
    assert folded("  Große\n\tFRAGE ") == "grosse frage"


def test_who_asks_for_what_is_not_there_is_told_its_name() -> None:
    missing = no_such_conversation("c1")
    assert (missing.message, missing.param, missing.code) == (
        "There is no conversation c1.",
        "id",
        "conversation_not_found",
    )
