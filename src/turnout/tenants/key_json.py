"""API keys as HTTP shows them."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tenants.key_rules import Key, Role
from turnout.validation import Body, WholeSeconds, shown_as

TENANT = r"^[A-Za-z0-9_-]{1,64}$"
MAX_KEY_S = 10 * 366 * 86_400


class KeyRequest(Body):
    name: str = Field("", max_length=100)
    tenant: str = Field("", pattern=TENANT, description="A new one for a user's key, if it is not given.")
    role: Role = Role.USER
    expires_in_s: int | None = Field(None, ge=1, le=MAX_KEY_S, description="Never, if it is not given.")


class KeyRotation(Body):
    overlap_s: int = Field(86_400, ge=0, le=MAX_KEY_S, description="How long the old key works on.")
    expires_in_s: int | None = Field(
        None, ge=1, le=MAX_KEY_S, description="As long as the old key was to live."
    )


class KeyShown(BaseModel):
    """`token` is there only in the answer that created the key, `replaces` in the one that rotated another."""

    id: str
    object: Literal["key"] = "key"
    tenant: str
    role: Role
    name: str
    created_at: WholeSeconds
    expires_at: WholeSeconds | None = None
    token: str | None = None
    replaces: str | None = None


class KeyList(BaseModel):
    object: Literal["list"] = "list"
    data: list[KeyShown]


class KeyDeleted(BaseModel):
    id: str
    object: Literal["key.deleted"] = "key.deleted"
    deleted: bool = True


def key_of(key: Key, token: str | None = None, replaces: str | None = None) -> KeyShown:
    return shown_as(KeyShown, key, token=token, replaces=replaces)
