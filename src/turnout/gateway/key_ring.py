"""Keys as this gateway knows them: looked up by their token, remembered for a moment."""

from collections.abc import Callable

from turnout.domain.errors import Forbidden, Unauthorized, Unavailable
from turnout.domain.keys import Key, Role, matches, mint, split_token
from turnout.domain.tasks import TenantId
from turnout.ports.keys import KeyStore

_KEEP_S = 5.0  # a revoked key works at most this much longer
_KEEP_AWAY_S = 60.0  # a known key works so long while keys cannot be looked up: nor can one be revoked then
_MAX_KEPT = 4096
_MAX_ID_CHARS = 64

# An unknown id is compared too, so that the time to refuse says nothing about which ids exist.
_NOBODY, _ = mint("nobody", "nothing", TenantId("nobody"), Role.USER, "", 0.0)


class KeyRing:
    """Looks keys up, remembering the known ones for a moment; unknown ids are never remembered."""

    def __init__(self, store: KeyStore, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._kept: dict[str, tuple[Key, float]] = {}
        self._seen: dict[bytes, tuple[Key, float]] = {}  # by the header it came in

    async def identify(self, token: str) -> Key:
        """The key behind a token; raises Unauthorized."""
        parts = split_token(token)
        if parts is None or len(parts[0]) > _MAX_ID_CHARS:
            raise Unauthorized("The API key is not valid.", code="invalid_api_key")
        key_id, secret = parts
        key = await self._find(key_id)
        if not matches(key or _NOBODY, secret) or key is None:
            raise Unauthorized("The API key is not valid.", code="invalid_api_key")
        return key

    def remembered(self, authorization: bytes | None) -> Key | None:
        """The key behind an Authorization header, if it was looked up a moment ago; never waits."""
        if authorization is None:
            return None
        # Looked up by a keyed hash and compared only where all its bits agree: the time tells of no beginning of a key.
        kept = self._seen.get(authorization)
        if kept is None or kept is not self._kept.get(kept[0].id):
            kept = self._recall(authorization)
        return kept[0] if kept is not None and self._now() - kept[1] < _KEEP_S else None

    def _recall(self, authorization: bytes) -> tuple[Key, float] | None:
        parts = split_token(bearer(authorization))
        kept = self._kept.get(parts[0]) if parts else None
        if parts is None or kept is None or not matches(kept[0], parts[1]):
            return None
        if len(self._seen) >= _MAX_KEPT:
            self._seen.clear()
        self._seen[authorization] = kept
        return kept

    def drop(self, key_id: str) -> None:
        """Forgets a key that was just revoked here."""
        self._kept.pop(key_id, None)

    async def _find(self, key_id: str) -> Key | None:
        kept = self._kept.get(key_id)
        if kept is not None and self._now() - kept[1] < _KEEP_S:
            return kept[0]
        try:
            key = await self._store.find(key_id)
        except Unavailable:
            if kept is not None and self._now() - kept[1] < _KEEP_AWAY_S:
                return kept[0]
            raise
        self._kept.pop(key_id, None)
        if key is not None:
            while len(self._kept) >= _MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key_id] = (key, self._now())
        return key


def bearer(authorization: bytes | None) -> str:
    """The token in an Authorization header. Raises Unauthorized."""
    scheme, _, token = (authorization or b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise Unauthorized("Give an API key: 'Authorization: Bearer tk-…'.", code="missing_api_key")
    return token.strip().decode("latin-1")


def require_user(key: Key) -> Key:
    """Refuses a worker's key: only users and admins submit work."""
    if key.role is Role.WORKER:
        raise Forbidden("A worker's key cannot be used for videos.", code="role_not_allowed")
    return key
