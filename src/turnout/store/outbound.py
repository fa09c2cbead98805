"""HTTP to URLs that others name: images to fetch, webhooks to call, workers that join. Owns the guard against server-side
request forgery.

The host is resolved here, every address of it is checked, and the connection goes to an address that was checked. So a
name that resolves to another address later (DNS rebinding) gains nothing. Each redirect is checked in the same way.

Whoever names a URL decides how long the call takes. So those who ask take turns, and each has a few places of its own: for
calls, and for look-ups, which nobody can end.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from threading import Thread
from typing import Any, TypeAlias

import httpx

from turnout.errors import InvalidRequest, TooLarge
from turnout.store.address_rules import Address, is_host, is_public
from turnout.tenants.tenant_turns import TenantTurns, TurnLimits
from turnout.tenants.turn_rules import Turn

_CALLS = TurnLimits(
    places=24, of_one=4, waiting=128, wait_s=30.0, busy="Too many URLs wait to be called.", code="urls_busy"
)
_LOOK_UPS = TurnLimits(
    places=12,
    of_one=2,
    waiting=128,
    wait_s=30.0,
    busy="Too many host names wait to be found.",
    code="urls_busy",
)
_MAX_ADDRESSES = 3
_STEP_S = 10.0  # to connect, and between two pieces
_REDIRECTS = (301, 302, 303, 307, 308)

# After IDNA a name has no other characters. Resolvers and headers treat others in different ways.
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?")

Resolve: TypeAlias = Callable[[str, int], Coroutine[Any, Any, Sequence[str]]]


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
    found: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
    # A thread of its own: those of the event loop are few and serve other things, and the process waits for them at its end.
    Thread(target=_look_up, args=(host, port, found), name=f"look-up of {host[:50]}", daemon=True).start()
    return await found


def _look_up(host: str, port: int, found: asyncio.Future[Sequence[str]]) -> None:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        tell = partial(_tell, found.set_result, found, list(dict.fromkeys(str(e[4][0]) for e in entries)))
    except (OSError, UnicodeError) as err:
        tell = partial(_tell, found.set_exception, found, err)
    with suppress(RuntimeError):  # the event loop has ended
        found.get_loop().call_soon_threadsafe(tell)


def _tell(how: Callable[[Any], None], found: asyncio.Future[Sequence[str]], what: object) -> None:
    if not found.done():
        how(what)


class Outbound:
    """`reach` overrides `allow_private`; `tls` has the trusted authorities, if not the usual. `whose` a call is says whose
    turn it takes: a tenant's, or that of whoever else names the URL."""

    def __init__(
        self,
        allow_private: bool,
        resolve: Resolve = system_resolve,
        reach: Reach | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._reach = reach or (ANYWHERE if allow_private else PUBLIC)
        self._resolve = resolve
        self._calls = TenantTurns(_CALLS)
        self._look_ups = TenantTurns(_LOOK_UPS)
        self._looking: set[asyncio.Task[Sequence[str]]] = set()
        self._client = httpx.AsyncClient(
            verify=tls or True,
            trust_env=False,  # a proxy would resolve names itself
            timeout=_STEP_S,
            # Connections are pooled by address: one that was made for another host name must not be used again.
            limits=httpx.Limits(max_connections=_CALLS.places, max_keepalive_connections=0),
            headers={"User-Agent": "turnout", "Accept-Encoding": "identity"},
        )

    async def aclose(self) -> None:
        for task in self._looking:
            task.cancel()
        await self._client.aclose()

    async def check(self, url: str, whose: Turn) -> None:
        """Raises for a URL that could not be fetched: bad syntax, an address that is not public, an unknown host."""
        target = _parsed(url)
        async with self._deadline():
            await self._addresses(target, whose)

    async def get(self, url: str, max_bytes: int, whose: Turn) -> bytes:
        async with self.getting(url, max_bytes, whose) as (_, body):
            return body

    @asynccontextmanager
    async def getting(self, url: str, max_bytes: int, whose: Turn) -> AsyncGenerator[tuple[str, bytes]]:
        """The address that answered, and what: who names the URL cannot make it lead elsewhere later. The turn ends with the
        context, so what one may have fetched and not yet used is bounded."""
        target = _parsed(url)
        async with self._calls.turn(whose):
            async with self._deadline():
                found = await self._get(target, max_bytes, whose)
            yield found

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, whose: Turn) -> int:
        """The status of the answer; redirects are not followed."""
        target = _parsed(url)
        async with (
            self._calls.turn(whose),
            self._deadline(),
            self._send("POST", target, headers, body, whose) as answer,
        ):
            return answer.status_code

    async def post_for(
        self, url: str, headers: Mapping[str, str], body: bytes, max_bytes: int, whose: Turn
    ) -> bytes:
        """What is answered; redirects are not followed."""
        target = _parsed(url)
        async with (
            self._calls.turn(whose),
            self._deadline(),
            self._send("POST", target, headers, body, whose) as answer,
        ):
            return await _body(answer, max_bytes)

    async def _get(self, target: httpx.URL, max_bytes: int, whose: Turn) -> tuple[str, bytes]:
        for _ in range(self._reach.redirects + 1):
            async with self._send("GET", target, {}, None, whose) as answer:
                if answer.status_code not in _REDIRECTS:
                    return answer.request.url.host, await _body(answer, max_bytes)
                target = _parsed(str(target.join(answer.headers.get("location", ""))))
        raise InvalidRequest(
            f"The URL redirects more than {self._reach.redirects} times.", code="url_unreachable"
        )

    @asynccontextmanager
    async def _deadline(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._reach.total_s):
                yield
        except TimeoutError as err:
            raise InvalidRequest(
                f"The URL did not answer within {self._reach.total_s:g} s.", code="url_unreachable"
            ) from err

    async def _addresses(self, url: httpx.URL, whose: Turn) -> Sequence[str]:
        """The addresses of the URL's host; raises InvalidRequest unless all of them are allowed."""
        host = url.raw_host.decode("ascii").strip("[]")
        try:
            found = await self._looked_up(host, url.port or (443 if url.scheme == "https" else 80), whose)
        except (OSError, UnicodeError) as err:
            raise InvalidRequest("The URL's host was not found.", code="url_unreachable") from err
        if not found:
            raise InvalidRequest("The URL's host was not found.", code="url_unreachable")
        if not all(self._reach.allows(ip_address(address)) for address in found):
            raise InvalidRequest(self._reach.refusal, code="url_not_allowed")
        return found

    async def _looked_up(self, host: str, port: int, whose: Turn) -> Sequence[str]:
        """The place is held until the look-up has ended, though nobody waits for it any more."""
        await self._look_ups.enter(whose)
        task = asyncio.create_task(self._resolve(host, port), name=f"look-up of {host[:50]}")
        self._looking.add(task)
        task.add_done_callback(partial(self._look_up_ended, whose))
        return await asyncio.shield(task)

    def _look_up_ended(self, whose: Turn, task: asyncio.Task[Sequence[str]]) -> None:
        self._looking.discard(task)
        self._look_ups.leave(whose)
        if not task.cancelled():
            task.exception()  # whoever asked has heard it, or has left

    @asynccontextmanager
    async def _send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes | None, whose: Turn
    ) -> AsyncGenerator[httpx.Response]:
        addresses = await self._addresses(url, whose)
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
