"""HTTP to URLs that others name: images to fetch, webhooks to call, workers that join. Owns the guard against server-side
request forgery.

The host is resolved here, every address of it is checked, and the connection goes to an address that was checked. So a
name that resolves to another address later (DNS rebinding) gains nothing. Each redirect is checked in the same way.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TypeAlias

import httpx

from turnout.errors import InvalidRequest, TooLarge
from turnout.store.address_rules import Address, is_host, is_public

_MAX_ADDRESSES = 3
_STEP_S = 10.0  # to connect, and between two pieces
_REDIRECTS = (301, 302, 303, 307, 308)

# After IDNA a name has no other characters. Resolvers and headers treat others in different ways.
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?")

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Reach:
    """Which addresses may be called: `allows` decides, `refusal` is the error message for others. `total_s` is for a whole call."""

    allows: Callable[[Address], bool]
    refusal: str
    redirects: int = 3
    total_s: float = 30.0


PUBLIC = Reach(
    is_public,
    "The URL leads to an address that is not public; the operator can allow that (allow_private_urls).",
)
ANYWHERE = Reach(lambda _: True, "")
WORKERS = Reach(is_host, "The URL leads to an address that no worker can have.", redirects=0, total_s=5.0)


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Every address of a host. Addresses in any notation (decimal, octal, hexadecimal) are normalised."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Outbound:
    """The Fetcher of the product. `reach` overrides `allow_private`; `tls` has the trusted authorities, if not the usual."""

    def __init__(
        self,
        allow_private: bool,
        resolve: Resolve = system_resolve,
        reach: Reach | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._reach = reach or (ANYWHERE if allow_private else PUBLIC)
        self._resolve = resolve
        self._client = httpx.AsyncClient(
            verify=tls or True,
            trust_env=False,  # a proxy would resolve names itself
            timeout=_STEP_S,
            # Connections are pooled by address: one that was made for another host name must not be used again.
            limits=httpx.Limits(max_connections=20, max_keepalive_connections=0),
            headers={"User-Agent": "turnout", "Accept-Encoding": "identity"},
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def check(self, url: str) -> None:
        """Raises for a URL that could not be fetched: bad syntax, an address that is not public, an unknown host."""
        async with self._deadline():
            await self._addresses(_parsed(url))

    async def get(self, url: str, max_bytes: int) -> bytes:
        return (await self.get_with_address(url, max_bytes))[1]

    async def get_with_address(self, url: str, max_bytes: int) -> tuple[str, bytes]:
        """The same, with the address that answered: who names the URL cannot make it lead elsewhere later."""
        async with self._deadline():
            target = _parsed(url)
            for _ in range(self._reach.redirects + 1):
                async with self._send("GET", target, {}, None) as answer:
                    if answer.status_code not in _REDIRECTS:
                        return answer.request.url.host, await _body(answer, max_bytes)
                    target = _parsed(str(target.join(answer.headers.get("location", ""))))
            raise InvalidRequest(
                f"The URL redirects more than {self._reach.redirects} times.", code="url_unreachable"
            )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; redirects are not followed."""
        async with self._deadline(), self._send("POST", _parsed(url), headers, body) as answer:
            return answer.status_code

    @asynccontextmanager
    async def _deadline(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._reach.total_s):
                yield
        except TimeoutError as err:
            raise InvalidRequest(
                f"The URL did not answer within {self._reach.total_s:g} s.", code="url_unreachable"
            ) from err

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        """The addresses of the URL's host; raises InvalidRequest unless all of them are allowed."""
        host = url.raw_host.decode("ascii").strip("[]")
        try:
            found = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError) as err:
            raise InvalidRequest("The URL's host was not found.", code="url_unreachable") from err
        if not found:
            raise InvalidRequest("The URL's host was not found.", code="url_unreachable")
        if not all(self._reach.allows(ip_address(address)) for address in found):
            raise InvalidRequest(self._reach.refusal, code="url_not_allowed")
        return found

    @asynccontextmanager
    async def _send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncGenerator[httpx.Response]:
        addresses = await self._addresses(url)
        answer = await self._connect(method, url, headers, body, addresses[:_MAX_ADDRESSES])
        try:
            yield answer
        except (httpx.HTTPError, httpx.StreamError) as err:
            raise _unreachable(err) from err
        finally:
            await answer.aclose()

    async def _connect(
        self,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        body: bytes | None,
        addresses: Sequence[str],
    ) -> httpx.Response:
        failure: Exception | None = None
        for address in addresses:
            request = self._client.build_request(
                method,
                url.copy_with(host=address, fragment=None),
                headers={**headers, "Host": url.netloc.decode("ascii")},
                content=body,
                # The certificate is checked against the name, though the connection goes to the address.
                extensions={"sni_hostname": url.raw_host.decode("ascii")},
            )
            try:
                return await self._client.send(request, stream=True, follow_redirects=False)
            except (httpx.ConnectError, httpx.ConnectTimeout) as err:
                failure = err
            except httpx.HTTPError as err:
                raise _unreachable(err) from err
        raise _unreachable(failure) from failure


def _parsed(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host
    except (httpx.InvalidURL, ValueError, TypeError) as err:
        raise InvalidRequest("The URL is not valid.", code="url_not_allowed") from err
    if parsed.scheme not in ("http", "https") or not host:
        raise InvalidRequest("Only http and https URLs are allowed.", code="url_not_allowed")
    if not _HOST.fullmatch(host.decode("ascii")) or parsed.port == 0 or (parsed.port or 0) > 65535:
        raise InvalidRequest("The URL is not valid.", code="url_not_allowed")
    if parsed.userinfo:
        raise InvalidRequest("A URL with a user name or password is not allowed.", code="url_not_allowed")
    return parsed


async def _body(answer: httpx.Response, max_bytes: int) -> bytes:
    if answer.status_code != 200:
        raise InvalidRequest(f"The URL answered {answer.status_code}.", code="url_unreachable")
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        # Decompression could exceed `max_bytes` many times over.
        raise InvalidRequest("The URL's answer is compressed.", code="url_unreachable")
    body = bytearray()
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > max_bytes:
            raise TooLarge(f"The URL's answer is over {max_bytes} bytes.", code="body_too_large")
    return bytes(body)


def _unreachable(err: Exception | None) -> InvalidRequest:
    return InvalidRequest(f"The URL could not be reached ({type(err).__name__}).", code="url_unreachable")
