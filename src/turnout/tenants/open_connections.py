"""What is open at this gateway, by whose right it is open: a caller's, or a worker's."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Generic, TypeVar, cast

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.errors import TurnoutError
from turnout.tenants.caller import Caller, right_ended

_Close = Callable[[], None]
_Owner = TypeVar("_Owner")
_CALLER = "caller"  # in the state of a request


class OpenConnections(Generic[_Owner]):
    """`close` ends all that is held by an owner. Each holder says itself how it is closed."""

    def __init__(self) -> None:
        self._open: defaultdict[_Owner, set[_Close]] = defaultdict(set)

    @property
    def owners(self) -> Collection[_Owner]:
        return self._open.keys()

    @contextmanager
    def hold(self, owner: _Owner, close: _Close) -> Generator[None]:
        """`close` is called if the owner loses its right before the context ends. It must not wait or raise."""
        self._open[owner].add(close)
        try:
            yield
        finally:
            self._open[owner].discard(close)
            if not self._open[owner]:
                del self._open[owner]

    @asynccontextmanager
    async def within(self, owner: _Owner, err: TurnoutError) -> AsyncGenerator[None]:
        """Cancels what runs in it, and raises `err`, if the owner loses its right."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                with self.hold(owner, lambda: _end(limit)):
                    yield
        except TimeoutError:
            if limit.expired():
                raise err from None
            raise

    def close(self, owners: Collection[_Owner]) -> None:
        for owner in owners:
            for close in tuple(self._open.get(owner, ())):
                close()


def _end(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


def name_caller(connection: HTTPConnection, caller: Caller) -> None:
    setattr(connection.state, _CALLER, caller)


def caller_of(scope: Scope) -> Caller | None:
    """Whoever was admitted with this request; None before that."""
    return cast("Caller | None", scope.get("state", {}).get(_CALLER))


class EndsWithCaller:
    """ASGI middleware that ends answers which are under way, and WebSockets, when their caller loses its right. So no route can
    forget to. A request that has no answer yet is let finish: it may be the very one that revokes its caller's key."""

    def __init__(self, app: ASGIApp, callers: OpenConnections[Caller]) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit, held, endless = asyncio.timeout(None), False, False

        async def watched(message: Message) -> None:
            nonlocal held, endless
            if message["type"] == "http.response.start":
                endless = not any(name == b"content-length" for name, _ in message.get("headers", ()))
            elif not held and (message["type"] != "http.response.body" or message.get("more_body")):
                caller = caller_of(scope)
                if caller is not None:
                    holding.enter_context(self._callers.hold(caller, lambda: _end(limit)))
                    held = True
            await send(message)

        try:
            with ExitStack() as holding:
                async with limit:
                    await self._app(scope, receive, watched)
        except TimeoutError:
            if not limit.expired():
                raise
            # An answer that told its length stays incomplete: then the server closes the connection.
            if scope["type"] == "websocket":
                err = right_ended()
                await send({"type": "websocket.close", "code": 4000 + err.status, "reason": err.message})
            elif endless:
                await send({"type": "http.response.body", "body": b""})
