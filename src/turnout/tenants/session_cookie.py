"""The session cookie of the page: when it counts as a key.

Browsers send cookies also for requests that other sites start. So a cookie counts only where the browser says that our
own page asks. Scripts of another port of this host are another origin, though cookies do not tell ports apart.
"""

from collections.abc import Iterable

from turnout.errors import Forbidden

_NAMES = ("__Host-turnout_session", "turnout_session")
_READING = ("GET", "HEAD")


def cookie_name(secure: bool) -> str:
    """Over https the name itself makes browsers refuse a cookie that another host or plain http has set."""
    return _NAMES[0] if secure else _NAMES[1]


def set_cookie(token: str, max_age_s: int | None, secure: bool) -> str:
    """`max_age_s` None: until the browser is closed."""
    age = "" if max_age_s is None else f"; Max-Age={max_age_s}"
    flags = "; Secure" if secure else ""
    return f"{cookie_name(secure)}={token}; HttpOnly; SameSite=Strict; Path=/{age}{flags}"


def cookie_authorization(method: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The Authorization header that the request's session cookie stands for; None without one. `method` of a WebSocket's
    handshake is "WEBSOCKET". Raises Forbidden for a request that another origin started."""
    said = list(headers)
    cookies = b"; ".join([value for name, value in said if name == b"cookie"])
    token = _token(cookies.decode("latin-1")) if cookies else None
    if token is None:
        return None
    refuse_other_origins(method, said)
    return f"Bearer {token}".encode("latin-1")


def refuse_other_origins(method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises Forbidden unless the browser says that our own page asks, or the person who typed the address."""
    said = dict(headers)
    origin, site = said.get(b"origin", b""), said.get(b"sec-fetch-site", b"")
    if origin:
        ours = origin.partition(b"://")[2].lower() == said.get(b"host", b"").lower()
    elif site:
        ours = site == b"same-origin" or (site == b"none" and method in _READING)  # none: typed by the person
    else:
        ours = method in _READING
    if not ours or (site and site not in (b"same-origin", b"none")):
        raise Forbidden("A session works only from Turnout's own page.", code="wrong_origin")


def _token(cookies: str) -> str | None:
    found: dict[str, str] = {}
    for pair in cookies.split(";"):
        name, _, value = pair.strip().partition("=")
        found[name] = value
    return next((found[name] for name in _NAMES if found.get(name)), None)
