"""Sessions of the page, as its API shows them."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tenants.caller import Caller
from turnout.tenants.key_rules import Role
from turnout.validation import Body


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
