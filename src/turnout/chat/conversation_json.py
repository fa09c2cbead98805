"""Conversations as HTTP shows them. Messages are a tree: each has a parent, and `leaf` is the end of the branch that is shown."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from turnout.chat.conversation_rules import KeptConversation
from turnout.validation import Body, WholeSeconds, shown_as

ID = r"^[A-Za-z0-9-]{1,64}$"
MAX_MESSAGES = 2_000
_Id = Annotated[str, Field(pattern=ID)]
_Picture = Annotated[
    str, Field(pattern=r"^data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/]+=*$", max_length=2 * 2**20)
]


class AnswerFigures(Body):
    tokens: int = Field(ge=0, le=10**9)
    first_token_ms: int = Field(ge=0, le=10**9)
    tokens_per_second: float | None = Field(None, ge=0, le=10**9, allow_inf_nan=False)


class KeptMessage(Body):
    """`broken` is why an answer is not whole, `stopped` that its reader ended it."""

    id: _Id
    parent: _Id | None = None
    role: Literal["user", "assistant"]
    text: str = Field("", max_length=500_000)
    pictures: list[_Picture] = Field(default_factory=list[str], max_length=8, description="data: URLs.")
    model: str | None = Field(None, max_length=100)
    figures: AnswerFigures | None = None
    broken: str | None = Field(None, max_length=2_000)
    stopped: bool = False


class Said(Body):
    """What a conversation consists of besides what its list knows."""

    system: str = Field("", max_length=20_000)
    temperature: float = Field(0.7, ge=0, le=2, allow_inf_nan=False)
    leaf: _Id | None = None
    messages: list[KeptMessage] = Field(default_factory=list[KeptMessage], max_length=MAX_MESSAGES)


class KeepConversation(Said):
    revision: int = Field(0, ge=0, le=2**53, description="The one that this follows on; 0 for a new one.")
    title: str = Field("", max_length=200)
    model: str | None = Field(None, max_length=100)


class RenameConversation(Body):
    title: str = Field(min_length=1, max_length=200)


class ConversationListed(BaseModel):
    id: str
    object: Literal["conversation"] = "conversation"
    revision: int
    title: str
    model: str | None
    created_at: WholeSeconds
    updated_at: WholeSeconds


class ConversationShown(ConversationListed):
    system: str
    temperature: float
    leaf: str | None
    messages: list[KeptMessage]


class ConversationList(BaseModel):
    """`most` is how many may be kept; 0: none are."""

    object: Literal["list"] = "list"
    data: list[ConversationListed]
    most: int


class ConversationDeleted(BaseModel):
    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


def listed(one: KeptConversation) -> ConversationListed:
    return shown_as(ConversationListed, one, object="conversation")  # the record's own is where it lies


def conversation_shown(one: KeptConversation, said: bytes) -> ConversationShown:
    content = Said.model_validate_json(said)
    return ConversationShown(**listed(one).model_dump(), **dict(content))
