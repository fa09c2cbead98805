"""Sessions of the page, as its API shows them."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tenants.caller import Caller
from turnout.tenants.key_rules import Role
from turnout.validation import Body


class LoginCode(Body):
    code: str = Field(
        min_length=1, max_length=200, description="The one-time code that was made for this login."
    )


class CodeShown(BaseModel):
    """`code` works once."""

    object: Literal["session.code"] = "session.code"
    code: str
    expires_at: int


class SessionShown(BaseModel):
    """`expires_at` is null for a key that does not expire."""

    object: Literal["session"] = "session"
    tenant: str
    role: Role
    name: str
    expires_at: int | None


def session_of(caller: Caller) -> SessionShown:
    expires_at = None if caller.expires_at is None else int(caller.expires_at)
    role = Role(caller.role)  # everyone has one but those with a link, who cannot log in
    return SessionShown(tenant=caller.tenant, role=role, name=caller.name, expires_at=expires_at)
