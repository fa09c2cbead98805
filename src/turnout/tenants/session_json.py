"""Sessions of the page as HTTP shows them: the one that asks, and all of one person, or of one key."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tenants.caller import Caller
from turnout.tenants.key_rules import Role
from turnout.tenants.session_store import OpenSession
from turnout.validation import Body, WholeSeconds, shown_as


class LoginRequest(Body):
    """One of `code` and `key`."""

    code: str | None = Field(
        None, min_length=1, max_length=200, description="The one-time code that was made for this login."
    )
    key: str | None = Field(None, min_length=1, max_length=16_384, description="An API key.")
    remember: bool = Field(
        False, description="With a key: for 30 days, in place of 12 hours or until the browser is closed."
    )


class CodeShown(BaseModel):
    """`code` works once."""

    object: Literal["session.code"] = "session.code"
    code: str
    expires_at: int


class SessionShown(BaseModel):
    """`expires_at` is null for a key that does not expire. `person` is whose session it is, if it is a person's."""

    object: Literal["session"] = "session"
    tenant: str
    role: Role
    name: str
    expires_at: int | None
    person: str | None


def session_of(caller: Caller) -> SessionShown:
    expires_at = None if caller.expires_at is None else int(caller.expires_at)
    role = Role(caller.role)  # everyone has one but those with a link, who cannot log in
    return SessionShown(
        tenant=caller.tenant, role=role, name=caller.name, expires_at=expires_at, person=caller.person
    )


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
