"""Keys as this gateway knows them: looked up by their token, remembered for a moment. So are logins of the issuer."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from turnout.errors import Unauthorized, Unavailable
from turnout.tasks.task_rules import TenantId
from turnout.tenants.caller import Caller, caller_with, no_key_given
from turnout.tenants.key_rules import Key, Role, is_login, matches, mint, split_token
from turnout.tenants.key_store import KeyStore
from turnout.tenants.login_throttle import LoginThrottle
from turnout.tenants.oidc import OidcLogins
from turnout.tenants.open_access import OpenAccess
from turnout.tenants.session_cookie import cookie_authorization

_KEEP_S = 5.0  # a revoked key works at most this much longer
_KEEP_AWAY_S = 60.0  # a known key works so long while keys cannot be looked up: nor can one be revoked then
_LOOK_S = 0.25  # how long a request whose key was known waits for a look at it
_MAX_KEPT = 4096
_OURS = b"bearer tk-"
_MAX_ID_CHARS = 64

# An unknown id is compared too, so that the time to refuse says nothing about which ids exist.
_NOBODY, _ = mint("nobody", "nothing", TenantId("nobody"), Role.USER, "", 0.0)


async def _all_there() -> None:
    pass


class _Kept(NamedTuple):
    """A key that was looked up: good without another look until `fresh_until`, and until `away_until` while keys cannot be
    looked up. Neither is after its expiry, so whoever compares the clock with them need not ask for that."""

    key: Key
    caller: Caller
    fresh_until: float
    away_until: float


class KeyRing:
    """Looks keys up, remembering the known ones for a moment; unknown ids are never remembered. `check_data` raises when
    keys are unknown because all data is gone. Without `logins` only keys are taken. `open_access`: requests need no key."""

    def __init__(
        self,
        store: KeyStore,
        now: Callable[[], float],
        check_data: Callable[[], Awaitable[None]] = _all_there,
        logins: OidcLogins | None = None,
        open_access: OpenAccess | None = None,
    ) -> None:
        self._store = store
        self._open_access = open_access
        self._logins = logins
        self.check_data = check_data
        self._now = now
        self.throttle = LoginThrottle(now)
        self._kept: dict[str, _Kept] = {}
        self._seen: dict[bytes, _Kept] = {}  # by the header it came in

    def _authorization(
        self, method: str, given: bytes | None, headers: Iterable[tuple[bytes, bytes]]
    ) -> bytes | None:
        """The Authorization header that a request counts as having: the one that was `given`, its session cookie's, or in
        open mode the service's own. Raises Forbidden for what another site's page sent."""
        if self._open_access is None:
            return given or cookie_authorization(method, headers)
        # Clients that cannot go without a key send anything.
        if given is not None and given[: len(_OURS)].lower() == _OURS:
            return given
        return self._open_access.authorization(headers)

    def recall(
        self, method: str, given: bytes | None, headers: Iterable[tuple[bytes, bytes]]
    ) -> Caller | None:
        """What `identify` answers, if the caller was looked up a moment ago; else None. Never waits."""
        authorization = self._authorization(method, given, headers)
        if authorization is None:
            return None
        # Looked up by a keyed hash and compared only where all its bits agree: the time tells of no beginning of a key.
        kept = self._seen.get(authorization)
        if kept is None or kept is not self._kept.get(kept.key.id):
            kept = self._recall(authorization)
        return kept.caller if kept is not None and self._now() < kept.fresh_until else None

    async def identify(
        self, method: str, given: bytes | None, headers: Iterable[tuple[bytes, bytes]], address: str
    ) -> Caller | None:
        """Who sends a request with the Authorization header `given`, from `address`; None for nobody. A request with a key is
        judged by that alone. Raises Unauthorized, or Limited if many failed from there, and Forbidden for what another
        site's page sent. `method` of a WebSocket's handshake is "WEBSOCKET"."""
        authorization = self._authorization(method, given, headers)
        if authorization is None:
            return None
        token = bearer(authorization)
        try:
            return caller_with(await self._identify(token))
        except Unauthorized as err:
            if authorization != given:
                return None  # the session is over, and browsers keep the cookie all the same
            raise self.throttle.refused(address, err) from None

    async def _identify(self, token: str) -> Key:
        parts = split_token(token)
        if parts is None or len(parts[0]) > _MAX_ID_CHARS:
            raise _invalid_key()
        key_id, secret = parts
        if self._logins is not None and is_login(key_id):
            return await self._find_login(key_id, token, self._logins)
        key = await self._find(key_id)
        if not matches(key or _NOBODY, secret) or key is None:
            await self.check_data()  # for a wrong secret as well: the time must not tell which ids exist
            raise _invalid_key()
        if key.expired(self._now()):
            raise Unauthorized("The API key has expired.", code="expired_api_key")
        return key

    async def as_they_are(self, key_ids: Collection[str]) -> Mapping[str, Key | None]:
        """Keys, sessions and people that were good once, as they are now; None for those that are revoked, disabled or
        expired. While they cannot be looked up, those that are known. Of logins nothing is stored: they only expire."""
        stored = {key_id for key_id in key_ids if not is_login(key_id)}
        found: Mapping[str, Key | None]
        try:
            found = await self._store.find_all(stored)
            if None in found.values():
                await self.check_data()
        except Unavailable:
            found = {key_id: self._kept[key_id].key for key_id in stored if key_id in self._kept}
        now = self._now()
        return {i: None if key is None or key.expired(now) else key for i, key in found.items()}

    async def is_valid(self, key_id: str) -> bool:
        """Whether a key that was good once still is."""
        key = await self._find(key_id)
        return key is not None and not key.expired(self._now())

    def _recall(self, authorization: bytes) -> _Kept | None:
        parts = split_token(bearer(authorization))
        kept = self._kept.get(parts[0]) if parts else None
        if parts is None or kept is None or not matches(kept.key, parts[1]):
            return None
        if len(self._seen) >= _MAX_KEPT:
            self._seen.clear()
        self._seen[authorization] = kept
        return kept

    def drop(self, key_id: str) -> None:
        """Forgets a key or a person that was just revoked or changed here, and what lives with it."""
        for known, kept in tuple(self._kept.items()):
            if key_id in (known, kept.key.parent, kept.key.person):
                del self._kept[known]

    async def _find_login(self, key_id: str, token: str, logins: OidcLogins) -> Key:
        kept = self._kept.get(key_id)
        if kept is not None and self._now() < kept.fresh_until and matches(kept.key, token):
            return kept.key
        key = await logins.verify(token)
        try:
            key = await self._store.of_person(key, logins.issuer)
        except Unavailable:
            if kept is None or self._now() >= kept.away_until or not matches(kept.key, token):
                raise
            return kept.key
        self._kept.pop(key_id, None)
        if key.expired(self._now()):
            raise Unauthorized("The token's person may not come in any more.", code="invalid_token")
        self._keep(key)
        return key

    async def _find(self, key_id: str) -> Key | None:
        kept = self._kept.get(key_id)
        if kept is not None and self._now() < kept.fresh_until:
            return kept.key
        known = kept is not None and self._now() < kept.away_until
        if kept is not None and known:
            # Others go on with it while this one looks, and if it was in vain, until the next look is due.
            self._kept[key_id] = kept._replace(fresh_until=min(self._now() + _KEEP_S, kept.away_until))
        try:
            async with asyncio.timeout(_LOOK_S if known else None):
                key = await self._store.find(key_id)
        except (Unavailable, TimeoutError):
            if kept is not None and known:
                return kept.key
            raise
        self._kept.pop(key_id, None)
        if key is not None:
            self._keep(key)
        return key

    def _keep(self, key: Key) -> None:
        while len(self._kept) >= _MAX_KEPT:
            self._kept.pop(next(iter(self._kept)))
        now, ends_at = self._now(), inf if key.expires_at is None else key.expires_at
        fresh_until, away_until = min(now + _KEEP_S, ends_at), min(now + _KEEP_AWAY_S, ends_at)
        self._kept[key.id] = _Kept(key, caller_with(key), fresh_until, away_until)


def _invalid_key() -> Unauthorized:
    return Unauthorized("The API key is not valid.", code="invalid_api_key")


def bearer(authorization: bytes | None) -> str:
    """The token in an Authorization header. Raises Unauthorized."""
    scheme, _, token = (authorization or b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise no_key_given()
    return token.decode("latin-1")
