"""People as HTTP shows them."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from turnout.people.person_rules import ROLES, Person, Way
from turnout.people.person_store import KnownPerson
from turnout.tenants.allowance_rules import DailyLimits
from turnout.tenants.key_json import MAX_KEY_S
from turnout.tenants.key_rules import Role
from turnout.validation import Body, WholeSeconds, shown_as

EMAIL = r"^([^@\s]{1,64}@[^@\s]{1,190})?$"
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"\S")]
Email = Annotated[str, Field(max_length=255, pattern=EMAIL)]
PersonRole = Literal[Role.USER, Role.ADMIN]
ADay = Annotated[int | None, Field(ge=0, le=1_000_000)]
assert set(ROLES) == {Role.USER, Role.ADMIN}


class DailyLimitsGiven(Body):
    """For each day (UTC); null: as many as the tenant's limits let through."""

    videos: ADay = None
    chats: ADay = None

    def limits(self) -> DailyLimits:
        return DailyLimits(self.videos, self.chats)


class DailyLimitsShown(BaseModel):
    videos: int | None
    chats: int | None


class PersonShown(BaseModel):
    """`seen_at` is when she last opened the page. `issuer` and `subject` are set where she logs in by an issuer.
    `terms` is the id of the terms of use that she accepted last."""

    id: str
    object: Literal["person"] = "person"
    name: str
    email: str
    tenant: str
    role: Role
    way: Way
    limits: DailyLimitsShown
    created_at: WholeSeconds
    seen_at: int
    expires_at: WholeSeconds | None
    disabled: bool
    issuer: str
    subject: str
    terms: str = ""


class PersonList(BaseModel):
    """Newest first; the last one's id is the next page's `before`. `guests` are not in the list: it is how many there are."""

    object: Literal["list"] = "list"
    data: list[PersonShown]
    has_more: bool
    guests: int


class PersonChange(Body):
    """What is left out stays as it is."""

    name: Name | None = None
    email: Email | None = None
    role: PersonRole | None = None
    limits: DailyLimitsGiven | None = None
    disabled: bool | None = Field(
        None, description="Ends her sessions, keys, streams and unfinished tasks within seconds."
    )
    expires_in_s: int | None = Field(
        None, ge=0, le=MAX_KEY_S, description="How long she may stay, from now on; 0: for ever."
    )


class PersonDeleted(BaseModel):
    id: str
    object: Literal["person.deleted"] = "person.deleted"
    deleted: bool = True


def person_shown(known: KnownPerson) -> PersonShown:
    person = known.person
    return shown_as(PersonShown, person, seen_at=known.seen_at, disabled=person.disabled_at is not None)


def matches_search(person: Person, search: str) -> bool:
    words = f"{person.id} {person.name} {person.email} {person.tenant} {person.subject}".lower()
    return search.strip().lower() in words
