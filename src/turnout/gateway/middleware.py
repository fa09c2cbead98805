"""ASGI middleware around every route: the bound on bodies, the headers of every answer, unexpected errors."""

import itertools
import secrets

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.domain.body_budget import SMALL_BODY_BYTES, BodyBudget
from turnout.domain.error_table import INTERNAL_ERROR
from turnout.domain.errors import TooLarge, Unavailable
from turnout.gateway.problems import respond_to, to_response
from turnout.observe import get_log, name_request

# As ASGI has them: names in lower case.
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)


_PREFIX = f"req-{secrets.token_hex(6)}"
_numbers = itertools.count(1)

TENANT = "tenant"
"""Where in a request's state it is told whose it is, once that is known."""


class BodyLimit:
    """Refuses a body over `max_bytes`, also one that does not say its length, and large bodies while those of all requests
    together, or of the same tenant, take too much memory."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_bytes_in_all: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._bodies = BodyBudget(max_bytes_in_all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if declared.isdigit() and int(declared[:20]) > self._max_bytes:
            return await respond_to(self._too_large())(scope, receive, send)
        seen, charged = 0, dict[str, int]()

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                seen += size
                account = str(scope.get("state", {}).get(TENANT, "")) if seen > SMALL_BODY_BYTES else ""
                fits = self._bodies.fits(account, size) or seen <= SMALL_BODY_BYTES
                charged[account] = charged.get(account, 0) + size
                self._bodies.add(account, size)
                if seen > self._max_bytes:
                    raise self._too_large()  # inside the app, where errors become answers
                if not fits:
                    raise Unavailable("Too many large requests at once.", code="bodies_full")
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            for account, size in charged.items():
                self._bodies.remove(account, size)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is over {self._max_bytes} bytes.", code="body_too_large")


class StandardHeaders:
    """Adds the headers that a response does not set itself, and an id of the request that its logs have, too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        request_id = f"{_PREFIX}{next(_numbers):x}"
        name_request(request_id)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                own = ((b"x-request-id", request_id.encode()), *_HEADERS)  # what the relay answered has an id
                message["headers"] = headers + [one for one in own if one[0] not in given]
            await send(message)

        await self._app(scope, receive, guarded)


class UnexpectedErrors:
    """Answers 500 to an error that nobody foresaw. The framework would do so outside of all other middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return  # it hung up in the middle of its body: nobody is there to be told
        except Exception as err:
            if started:
                raise  # the server cuts the connection: that is all a client can be told now
            get_log().error("request failed", method=scope["method"], path=scope["path"], exc_info=err)
            await to_response(INTERNAL_ERROR)(scope, receive, send)
