"""API keys: who may do what. Only a hash of the secret is ever stored."""

import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum

from turnout.domain.tasks import TenantId


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Key:
    """`digest` is the SHA-256 of the secret: the secret is 256 random bits, so no slow hash is needed."""

    id: str
    tenant: TenantId
    role: Role
    name: str
    digest: str
    created_at: float


def mint(key_id: str, secret: str, tenant: TenantId, role: Role, name: str, now: float) -> tuple[Key, str]:
    """The record to store, and the token to show once. `key_id` and `secret` are random, url-safe, without '.'."""
    return Key(key_id, tenant, role, name, _digest(secret), now), f"tk-{key_id}.{secret}"


def split_token(token: str) -> tuple[str, str] | None:
    """(key id, secret) of a token, or None when it is not one of ours."""
    head, dot, secret = token.partition(".")
    if not dot or not head.startswith("tk-") or not secret:
        return None
    return head.removeprefix("tk-"), secret


def matches(key: Key, secret: str) -> bool:
    return hmac.compare_digest(key.digest, _digest(secret))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
