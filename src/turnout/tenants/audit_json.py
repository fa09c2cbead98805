"""The audit log as HTTP shows it."""

from typing import Literal

from pydantic import BaseModel


class AuditShown(BaseModel):
    id: str
    object: Literal["audit_entry"] = "audit_entry"
    at: float
    actor: str
    action: str
    target: str
    address: str
    detail: dict[str, str]


class AuditPage(BaseModel):
    """Newest first; the last one's id is the next page's `before`."""

    object: Literal["list"] = "list"
    data: list[AuditShown]
    has_more: bool
