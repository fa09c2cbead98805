"""A caller's own account as HTTP shows it."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.people.person_json import Email, Name, PersonShown
from turnout.tenants.key_json import MAX_KEY_S
from turnout.tenants.key_rules import Role
from turnout.tenants.session_store import OpenSession
from turnout.validation import Body, WholeSeconds, shown_as


class TodayShown(BaseModel):
    """`asked` for today (UTC), of the `most` that may be."""

    asked: int
    most: int


class AccountShown(BaseModel):
    """`person` is null for a key that is no person's; `videos_today` and `chats_today` where no number a day is set."""

    object: Literal["account"] = "account"
    tenant: str
    role: Role
    name: str
    person: PersonShown | None
    videos_today: TodayShown | None
    chats_today: TodayShown | None


class AccountChange(Body):
    """What is left out stays as it is."""

    name: Name | None = None
    email: Email | None = None


class OwnKeyRequest(Body):
    name: str = Field("", max_length=100)
    role: Literal[Role.USER, Role.ADMIN] = Field(Role.USER, description="At most the person's own.")
    expires_in_s: int | None = Field(None, ge=1, le=MAX_KEY_S, description="Never, if it is not given.")


class OwnSessionShown(BaseModel):
    """`agent` and `address` are what the browser said of itself when it logged in, and where it was."""

    id: str
    object: Literal["account.session"] = "account.session"
    current: bool
    created_at: WholeSeconds
    expires_at: WholeSeconds | None
    agent: str
    address: str


class OwnSessionList(BaseModel):
    object: Literal["list"] = "list"
    data: list[OwnSessionShown]


class SessionsEnded(BaseModel):
    object: Literal["account.sessions.ended"] = "account.sessions.ended"
    ended: int


def own_session_of(opened: OpenSession, current: str) -> OwnSessionShown:
    session, by = opened.session, opened.by
    return shown_as(
        OwnSessionShown, session, current=session.id == current, agent=by.agent, address=by.address
    )
