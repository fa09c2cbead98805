"""How a URL names Redis: one server (`redis://`, `rediss://`, `unix://`), or the Sentinels that know which server is the
primary: `redis+sentinel://user:password@host:port,host:port/service/db`."""

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from turnout.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """`user` and `password` are the Redis servers'; the Sentinels have a password of their own, or none."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    db: int
    user: str | None
    password: str | None
    sentinel_password: str | None


class UrlParts(NamedTuple):
    scheme: str
    netloc: str
    path: str
    query: str


def url_parts(url: str) -> UrlParts:
    """Like `urlsplit`, of which newer versions refuse several hosts when one is an IPv6 address."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    netloc, slash, path = rest.partition("/")
    return UrlParts(scheme, netloc, slash + path, query)


def read_sentinel_url(url: str) -> SentinelUrl | None:
    """None for the URL of a single server."""
    parts = url_parts(url)
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
    scheme, netloc, path, query = url_parts(url)
    if password is not None:
        userinfo, _, host = netloc.rpartition("@")
        netloc = userinfo.partition(":")[0] + ":" + quote(password, safe="") + "@" + host
    if sentinel_password is not None:
        query = urlencode({**dict(parse_qsl(query)), "sentinel_password": sentinel_password})
    return scheme + "://" + netloc + path + (f"?{query}" if query else "")
