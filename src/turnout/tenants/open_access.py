"""Open mode (`--no-auth`): whoever reaches this gateway may do everything, without a key. So only this machine may reach it.

The gateway listens on loopback alone. A web page in this machine's browser could reach it all the same, by a name of its own
that leads to loopback (DNS rebinding) or by a request that it never sees the answer of. Both are refused: the Host must be
loopback, and the request must come from our own page, from an origin that is allowed, or from no page at all.
"""

from collections.abc import Collection, Iterable

from turnout.errors import Forbidden
from turnout.store.address_rules import is_loopback_name


class OpenAccess:
    """`token` is the key that requests without one count as having."""

    def __init__(self, token: str, origins: Collection[str]) -> None:
        self._authorization = f"Bearer {token}".encode()
        self._origins = frozenset(origin.encode() for origin in origins)

    def authorization(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Raises Forbidden for what a web page sent."""
        host, origin, site = b"", b"", b""
        for name, value in headers:
            match name:
                case b"host":
                    host = value
                case b"origin":
                    origin = value
                case b"sec-fetch-site":
                    site = value
                case _:
                    pass
        if not is_loopback_name(host.decode("latin-1")):
            raise Forbidden("Without a key, call this machine by localhost or 127.0.0.1.", code="wrong_host")
        ours = origin.partition(b"://")[2].lower() == host.lower() if origin else True
        if origin not in self._origins and (not ours or site in (b"cross-site", b"same-site")):
            raise Forbidden(
                "Without a key, only Turnout's own page may call; others need cors_origins.",
                code="wrong_origin",
            )
        return self._authorization
