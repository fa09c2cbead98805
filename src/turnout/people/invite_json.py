"""Invites as HTTP shows them."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.people.invite_rules import Invite
from turnout.people.login_json import AcceptedTerms
from turnout.people.person_json import DailyLimitsGiven, DailyLimitsShown, Email, Name, PersonRole
from turnout.tenants.key_json import MAX_KEY_S, TENANT
from turnout.tenants.key_rules import Role
from turnout.validation import Body, WholeSeconds, shown_as

WEEK_S = 7 * 86_400
MAX_INVITE_S = 366 * 86_400


class InviteRequest(Body):
    uses: int = Field(1, ge=1, le=10_000, description="How many people may come by it.")
    expires_in_s: int = Field(WEEK_S, ge=60, le=MAX_INVITE_S, description="How long the link works.")
    tenant: str = Field(
        "", pattern=f"^$|{TENANT}", description="Whose work they share; if not given, each has her own."
    )
    role: PersonRole = Role.USER
    limits: DailyLimitsGiven = Field(default_factory=DailyLimitsGiven)
    stays_s: int | None = Field(
        None, ge=60, le=MAX_KEY_S, description="For how long they may stay; for ever, if it is not given."
    )
    note: str = Field("", max_length=200, description="What it is for; only admins see it.")
    person: str | None = Field(
        None, max_length=64, description="Brings this person back in, once, in place of making a new one."
    )


class InviteShown(BaseModel):
    """`token` and `link` are there only in the answer that made it."""

    id: str
    object: Literal["invite"] = "invite"
    created_at: WholeSeconds
    expires_at: WholeSeconds
    uses: int
    used: int
    tenant: str
    role: Role
    limits: DailyLimitsShown
    stays_s: int | None
    note: str
    person: str | None
    made_by: str
    token: str | None
    link: str | None


class InviteList(BaseModel):
    object: Literal["list"] = "list"
    data: list[InviteShown]


class InviteDeleted(BaseModel):
    id: str
    object: Literal["invite.deleted"] = "invite.deleted"
    deleted: bool = True


class InviteLook(Body):
    invite: str = Field(min_length=1, max_length=200, description="What stands in the link.")


class InviteSeen(BaseModel):
    """`name` is that of the person whom it brings back; null for one that makes a new one."""

    object: Literal["invite.seen"] = "invite.seen"
    name: str | None
    role: Role
    expires_at: int


class InviteLogin(Body):
    invite: str = Field(min_length=1, max_length=200, description="What stands in the link.")
    name: Name | None = Field(
        None, description="Who comes in; not needed where the invite is for one person."
    )
    email: Email = ""
    terms: AcceptedTerms = None
    remember: bool = Field(
        False, description="For 30 days, in place of 12 hours or until the browser is closed."
    )


def invite_shown(invite: Invite, used: int, token: str | None = None, link: str | None = None) -> InviteShown:
    return shown_as(InviteShown, invite, used=used, token=token, link=link)
