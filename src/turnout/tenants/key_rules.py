"""API keys, and sessions, which are keys of their own: who may do what. Only a hash of the secret is ever stored."""

import hashlib
import hmac
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from turnout.tasks.task_rules import PersonId, TenantId
from turnout.tenants.allowance_rules import Allowance

OWN_ADMIN, OWN_WORKER = "made by turnout up", "worker of turnout up"
OWN_NAMES = (OWN_ADMIN, OWN_WORKER)
"""What the keys are called that `turnout up` makes for itself."""
CODE_S = 120  # how long a login code works
PERSONS_CODE_S = 900  # and one that a person takes to another machine of hers
SESSION_S = 12 * 3600
REMEMBERED_S = 30 * 86_400
_SESSION = "s-"  # ids of keys are hexadecimal
_BOOTSTRAP = "boot-"
_LOGIN = "oidc-"
_GUEST = "g-"
_PERSON = re.compile(r"([pg]-[0-9a-f]{16})(-[0-9a-f]{8})?")


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"
    WORKER = "worker"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class Key:
    """`digest` is the SHA-256 of the secret: the secret is 256 random bits, so no slow hash is needed. From `expires_at`
    on the key is refused; None: never. One that was made `for_one_worker` ends when that worker is evicted. `parent` is the
    id of what it lives with, and None for a key that stands alone; `person` and `allowances` are that of the person whose it is."""

    id: str
    tenant: TenantId
    role: Role
    name: str
    digest: str
    created_at: float
    expires_at: float | None = None
    for_one_worker: bool = False
    parent: str | None = None
    person: PersonId | None = None
    allowances: tuple[Allowance, ...] = ()

    @property
    def alone(self) -> bool:
        """Whether it is no session, no person and no key of hers."""
        return self.parent is None and self.person is None

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


def bootstrap_id(random: str) -> str:
    """The id of a key that the bootstrap on Kubernetes makes: nobody else makes one like it."""
    return f"{_BOOTSTRAP}{random}"


def missing_keys(secret: Sequence[Key], known: Collection[str], added: Collection[str]) -> list[Key]:
    """Of the Secret's keys those to add where the ids in `known` are good, and the bootstrap has added those in `added` before.
    Where there are no keys, all. Elsewhere only those that the bootstrap made and never added: the Secret was filled anew, or
    this is another Redis. Whatever else is missing was revoked, and stays so."""
    if not known:
        return list(secret)
    return [
        key for key in secret if key.id.startswith(_BOOTSTRAP) and key.id not in known and key.id not in added
    ]


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


def with_parent(child: Key, parent: Key) -> Key:
    """The session, or the key of a person, as its parent is now. A session is its parent; a key may have been made to do
    less, and has a name of its own."""
    ends = [at for at in (child.expires_at, parent.expires_at) if at is not None]
    all_of_it = is_session(child.id) or parent.role is not Role.ADMIN
    return replace(
        child,
        tenant=parent.tenant,
        role=parent.role if all_of_it else child.role,
        name=parent.name if is_session(child.id) else child.name,
        expires_at=min(ends, default=None),
        parent=parent.id,
        person=parent.person,
        allowances=parent.allowances,
    )


def person_of(key_id: str) -> PersonId | None:
    """The person whose id this is, or whose key's."""
    found = _PERSON.fullmatch(key_id)
    return None if found is None else PersonId(found[1])


def is_guest(person: PersonId) -> bool:
    """A guest's id says so: fairness knows it of everything that is the guest's, without a look."""
    return person.startswith(_GUEST)


def guest_id(random: str) -> PersonId:
    return PersonId(f"{_GUEST}{random}")


def in_use_by(key: Key, own: Collection[str]) -> str | None:
    """Who would be cut off if the key were revoked, where that is easily overlooked; `own` are the ids that the caller
    works with."""
    if key.id in own:
        return "You are using this key yourself."
    if key.name == OWN_ADMIN:
        return (
            "Commands on the machine of `turnout up` use this key, until the next `turnout up` makes another."
        )
    if key.name == OWN_WORKER:
        return "The worker of `turnout up` joined with this key, and is evicted until the next `turnout up`."
    return None


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
