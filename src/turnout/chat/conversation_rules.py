"""Conversations that are kept: whose they are, what the list of them knows, and what one must stay within. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from turnout.errors import Conflict, InvalidRequest, NotFound, TooLarge

MAX_CONVERSATION_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class ConversationRoom:
    """How many conversations of one owner are kept, and how large they may be together."""

    most: int
    together_bytes: int


def room_of(guest: bool, most: int) -> ConversationRoom:
    """Anyone can come as a guest, and any number of times: what they leave behind until the day is over must stay small."""
    return (
        ConversationRoom(min(most, 20), MAX_CONVERSATION_BYTES)
        if guest
        else ConversationRoom(most, 256 * 2**20)
    )


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """What the list knows of one. `revision` grows with every change; `object` names where its messages lie, anew each time. `bytes`
    are all that lie there: what was said, and the words that are searched."""

    id: str
    revision: int
    title: str
    model: str | None
    created_at: float
    updated_at: float
    bytes: int
    object: str


def check_kept(kept: Collection[KeptConversation], now: KeptConversation, room: ConversationRoom) -> None:
    """Refuses one that was changed meanwhile, and one that there is no room for. `kept` are all of its owner's."""
    before = next((one for one in kept if one.id == now.id), None)
    if (before.revision if before else 0) + 1 != now.revision:
        raise changed_meanwhile()
    if before is None and len(kept) >= room.most:
        raise too_many(room.most)
    others = sum(one.bytes for one in kept if one.id != now.id)
    if others + now.bytes > room.together_bytes:
        raise too_large()


def too_large() -> TooLarge:
    return TooLarge("There is no room for more in this conversation.", code="conversation_too_large")


def changed_meanwhile() -> Conflict:
    return Conflict("The conversation was changed meanwhile.", "revision", "conversation_changed")


def too_many(most: int) -> Conflict:
    return Conflict(f"There are {most} conversations already: delete some.", code="too_many_conversations")


def no_such_conversation(conversation_id: str) -> NotFound:
    return NotFound(f"There is no conversation {conversation_id}.", "id", "conversation_not_found")


def check_tree(messages: Iterable[tuple[str, str | None]], leaf: str | None) -> None:
    """`messages` are (id, parent): each follows its parent in the list, so that no branch leads nowhere."""
    seen = set[str]()
    for message, parent in messages:
        if message in seen or (parent is not None and parent not in seen):
            raise InvalidRequest("Each message follows its parent, once.", "messages", "invalid_value")
        seen.add(message)
    if leaf is not None and leaf not in seen:
        raise InvalidRequest("leaf is one of the messages.", "leaf", "invalid_value")


def folded(text: str) -> str:
    """As it is searched for: without case, and with one space for many."""
    return " ".join(text.casefold().split())
