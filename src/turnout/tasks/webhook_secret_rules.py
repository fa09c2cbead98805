"""The secrets that sign a tenant's webhooks. Pure."""

import base64
from dataclasses import dataclass

_PREFIX = "whsec_"
_MOST_OLD = 4


@dataclass(frozen=True, slots=True)
class OldSecret:
    """Signs beside the current one until `until`; None stands for the service's own secret."""

    secret: str | None
    until: float


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    current: str
    created_at: float
    old: tuple[OldSecret, ...] = ()


def secret_of(random: bytes) -> str:
    """As Standard Webhooks write a secret."""
    return f"{_PREFIX}{base64.b64encode(random).decode()}"


def secret_bytes(secret: str) -> bytes:
    """The key in a `whsec_…` secret. Raises ValueError."""
    if not secret.startswith(_PREFIX):
        raise ValueError(f"it does not start with {_PREFIX}")
    return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)


def rotated(before: WebhookSecret | None, fresh: str, now: float, overlap_s: float) -> WebhookSecret:
    """The tenant's secrets with a fresh one. All older ones end with this overlap, or sooner if they were to."""
    ends_at = now + overlap_s
    last = OldSecret(before.current if before else None, ends_at)
    older = before.old if before else ()
    old = (last, *(OldSecret(one.secret, min(one.until, ends_at)) for one in older))
    return WebhookSecret(fresh, now, tuple(one for one in old if now < one.until)[:_MOST_OLD])


def signing(secret: WebhookSecret | None, service: str, now: float) -> tuple[str, ...]:
    """What to sign with, the current one first. `service` is the secret of tenants that have none of their own."""
    if secret is None:
        return (service,)
    return (secret.current, *(one.secret or service for one in secret.old if now < one.until))
