"""How a URL names Redis: one server (`redis://`, `rediss://`, `unix://`), or the Sentinels that know which server is the
primary: `redis+sentinel://user:password@host:port,host:port/service/db`."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from turnout.domain.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """`user` and `password` are the Redis servers'; the Sentinels have a password of their own, or none."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    db: int
    user: str | None
    password: str | None
    sentinel_password: str | None


def read_sentinel_url(url: str) -> SentinelUrl | None:
    """None for the URL of a single server."""
    parts = urlsplit(url)
    if parts.scheme != "redis+sentinel":
        return None
    userinfo, _, hosts = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    service, _, db = parts.path.strip("/").partition("/")
    known = dict(parse_qsl(parts.query))
    try:
        named = [urlsplit(f"//{host}") for host in hosts.split(",")]
        sentinels = tuple((str(one.hostname or ""), one.port or 26379) for one in named)
        if not service or not all(host for host, _ in sentinels) or set(known) - {"sentinel_password"}:
            raise ValueError
        return SentinelUrl(
            sentinels,
            service,
            int(db or 0),
            unquote(user) or None,
            unquote(password) or None,
            known.get("sentinel_password"),
        )
    except ValueError as err:
        raise Misconfigured(
            "redis_url: expected redis+sentinel://user:password@host:port,host:port/service/db"
        ) from err


def with_passwords(url: str, password: str | None, sentinel_password: str | None) -> str:
    """The URL with passwords that are kept apart from it."""
    parts = urlsplit(url)
    netloc, query = parts.netloc, parts.query
    if password is not None:
        userinfo, _, host = netloc.rpartition("@")
        netloc = userinfo.partition(":")[0] + ":" + quote(password, safe="") + "@" + host
    if sentinel_password is not None:
        query = urlencode({**dict(parse_qsl(query)), "sentinel_password": sentinel_password})
    # Without a host `urlunsplit` drops the slashes, and a URL of a socket would be none any more.
    return parts.scheme + "://" + netloc + urlunsplit(("", "", parts.path, query, parts.fragment))
