"""API keys: who may do what. Only a hash of the secret is ever stored."""

import hashlib
import hmac
from dataclasses import dataclass, replace
from enum import StrEnum

from turnout.tasks.task_rules import TenantId

OWN_ADMIN, OWN_WORKER = "made by turnout up", "worker of turnout up"
OWN_NAMES = (OWN_ADMIN, OWN_WORKER)
"""What the keys are called that `turnout up` makes for itself."""
CODE_S = 120  # how long a login code works
_SESSION = "s-"  # ids of keys are hexadecimal
_LOGIN = "oidc-"


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"
    WORKER = "worker"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class Key:
    """`digest` is the SHA-256 of the secret: the secret is 256 random bits, so no slow hash is needed. From `expires_at`
    on the key is refused; None: never. One that was made `for_one_worker` ends when that worker is evicted."""

    id: str
    tenant: TenantId
    role: Role
    name: str
    digest: str
    created_at: float
    expires_at: float | None = None
    for_one_worker: bool = False

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


def tenant_of_new(given: str, role: Role, key_id: str) -> TenantId:
    """Whose a new key is. A user's key for which nobody named a tenant has one of its own, so that it sees nothing of
    others; keys of those who run the service belong to `default`."""
    return TenantId(given or (f"t-{key_id}" if role is Role.USER else "default"))


def mint(
    key_id: str,
    secret: str,
    tenant: TenantId,
    role: Role,
    name: str,
    now: float,
    expires_in_s: float | None = None,
    for_one_worker: bool = False,
) -> tuple[Key, str]:
    """The record to store, and the token to show once. `key_id` and `secret` are random, url-safe, without '.'."""
    expires_at = None if expires_in_s is None else now + expires_in_s
    key = Key(key_id, tenant, role, name, secret_digest(secret), now, expires_at, for_one_worker)
    return key, f"tk-{key_id}.{secret}"


def rotate(
    old: Key, key_id: str, secret: str, now: float, overlap_s: float, expires_in_s: float | None
) -> tuple[Key, str, Key]:
    """(the new key, its token, the old key as it is from now on). The new key may do what the old one may, and lives as
    long as that was meant to if `expires_in_s` is None. The old one ends with the overlap, or sooner if it was to."""
    if expires_in_s is None and old.expires_at is not None:
        expires_in_s = old.expires_at - old.created_at
    new, token = mint(key_id, secret, old.tenant, old.role, old.name, now, expires_in_s, old.for_one_worker)
    ends_at = now + overlap_s
    if old.expires_at is not None:
        ends_at = min(ends_at, old.expires_at)
    return new, token, replace(old, expires_at=ends_at)


def mint_session(session_id: str, secret: str, parent: Key, now: float, ttl_s: float) -> tuple[Key, str]:
    """A session as a key of its own: it may do what its parent may, and ends with it or after `ttl_s`."""
    name = f"{_SESSION}{session_id}"
    session, token = mint(name, secret, parent.tenant, parent.role, parent.name, now, ttl_s)
    return with_parent(session, parent), token


def with_parent(session: Key, parent: Key) -> Key:
    """The session as its parent is now."""
    ends = [at for at in (session.expires_at, parent.expires_at) if at is not None]
    return replace(session, tenant=parent.tenant, role=parent.role, expires_at=min(ends, default=None))


def is_session(key_id: str) -> bool:
    return key_id.startswith(_SESSION)


def login_key(
    token: str, tenant: TenantId, role: Role, name: str, issued_at: float, expires_at: float
) -> Key:
    """A token of the OpenID Connect issuer as a key. It is stored nowhere."""
    return Key(_login_id(token), tenant, role, name, secret_digest(token), issued_at, expires_at)


def is_login(key_id: str) -> bool:
    return key_id.startswith(_LOGIN)


def split_token(token: str) -> tuple[str, str] | None:
    """(key id, secret) of a token, or None when it has not the form of one. A JWT is all secret."""
    head, dot, secret = token.partition(".")
    if head.startswith("tk-"):
        return (head.removeprefix("tk-"), secret) if secret else None
    return (_login_id(token), token) if dot and secret.count(".") == 1 else None


def matches(key: Key, secret: str) -> bool:
    return hmac.compare_digest(key.digest, secret_digest(secret))


def _login_id(token: str) -> str:
    return f"{_LOGIN}{secret_digest(token)[:32]}"


def secret_digest(secret: str) -> str:
    """What is kept of a secret: it is random and long, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()
