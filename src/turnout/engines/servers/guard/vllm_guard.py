"""Middleware that requires the key on every path of vLLM's server. vLLM imports it by this name, in a Python
environment of its own, so it may use the standard library alone.
"""

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_BODY = b'{"error":{"message":"this engine wants its key","type":"authentication_error"}}'


class Guard:
    """ASGI middleware outside all others. It looks at headers alone."""

    def __init__(self, app: Callable[[_Scope, _Receive, _Send], Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ['VLLM_API_KEY']}".encode()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        shown = next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
        if hmac.compare_digest(shown, self._expected):
            return await self._app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": _BODY})
