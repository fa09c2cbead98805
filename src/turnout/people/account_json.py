"""A caller's own account as HTTP shows it."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.people.person_json import Email, Name, PersonShown
from turnout.tenants.key_json import MAX_KEY_S
from turnout.tenants.key_rules import Role
from turnout.validation import Body


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
