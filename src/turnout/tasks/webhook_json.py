"""A tenant's webhook secret over HTTP."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tenants.key_json import TENANT
from turnout.validation import Body


class WebhookSecretRotation(Body):
    tenant: str | None = Field(None, pattern=TENANT, description="The caller's own, unless an admin asks.")
    overlap_s: int = Field(
        86_400, ge=0, le=30 * 86_400, description="How long the old secret signs beside the new one."
    )


class WebhookSecretShown(BaseModel):
    """The only answer that ever has the secret."""

    object: Literal["webhook.secret"] = "webhook.secret"
    tenant: str
    secret: str
    created_at: int
    old_until: int
