"""The audit log as HTTP shows it."""

from typing import Literal

from pydantic import BaseModel

from turnout.tenants.audit_rules import AuditEntry


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


def audit_shown(id_: str, entry: AuditEntry) -> AuditShown:
    return AuditShown(
        id=id_,
        at=entry.at,
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        address=entry.address,
        detail=dict(entry.detail),
    )
