"""Chat behind a server that knows ASGI alone, such as Ray Serve's: the relay listens on a Unix socket of this process, and
routes pass their requests on to it. So answers, limits and usage are the stand-alone gateway's; it is only slower."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httpx
import uvicorn
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from uvicorn.server import ServerState

from turnout.errors import Unavailable
from turnout.relay import Relay, RelaySettings
from turnout.tenants.auth import UserDep

_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
        *(b"expect", b"host", b"content-length", b"date", b"server"),
    }
)


class RelaySocket:
    """`run` must run for as long as `router` is served."""

    def __init__(self, relay: Relay, settings: RelaySettings) -> None:
        client, upstream = settings.client, settings.upstream
        self._relay = relay
        self._folder = tempfile.TemporaryDirectory(prefix="turnout-relay-")  # which nobody else may enter
        self._path = f"{self._folder.name}/relay.sock"
        self._client = httpx.AsyncHTTPTransport(
            uds=self._path,
            limits=httpx.Limits(max_connections=client.max_connections, max_keepalive_connections=64),
        )
        # The relay's own deadlines are shorter: these end a wait for a relay that hangs.
        wait_s = max(upstream.answer_s, upstream.chunk_s) + upstream.connect_s
        self._limits_s = {"connect": upstream.connect_s, "pool": upstream.connect_s}
        self._limits_s |= {"read": wait_s, "write": client.body_s}
        self.router = APIRouter(include_in_schema=False)
        for path in sorted(settings.paths):
            self.router.add_api_route(path, self._pass_on, methods=["POST"])

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        served = uvicorn.Config(
            _no_app, lifespan="off", ws="none", proxy_headers=False, log_config=None, access_log=False
        )
        made, state = cast("Callable[..., asyncio.Protocol]", self._relay.protocol), ServerState()
        server = await loop.create_unix_server(
            lambda: made(config=served, server_state=state, app_state={}, _loop=loop), self._path
        )
        async with server:
            await server.serve_forever()

    async def aclose(self) -> None:
        await self._client.aclose()
        self._folder.cleanup()

    async def _pass_on(self, request: Request, caller: UserDep) -> StreamingResponse:
        """The relay asks for the key itself; here it is asked for before the body is read."""
        sent = httpx.Request(
            "POST",
            f"http://relay{request.url.path}",
            headers=[(name, value) for name, value in request.headers.raw if name not in _HOP_BY_HOP],
            content=await request.body(),
            extensions={"timeout": self._limits_s},
        )
        try:
            answer = await _unless_gone(request, self._client.handle_async_request(sent))
        except httpx.TransportError as err:
            raise Unavailable("The relay does not answer.", code="relay_away", retry_after_s=1) from err
        response = StreamingResponse(_body(answer), answer.status_code)
        response.raw_headers = [
            (name.lower(), value)
            for name, value in answer.headers.raw
            if name.lower() not in _HOP_BY_HOP - {b"content-length"}
        ]
        return response


async def _unless_gone(request: Request, answering: Any) -> httpx.Response:
    """What is waited for, unless the client leaves first. Raises ClientDisconnect then."""
    answer = asyncio.ensure_future(answering)
    leaving = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return await answer
    finally:
        answer.cancel()
        leaving.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in answer.aiter_raw():
            yield part
    finally:
        await answer.aclose()


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    """Only requests for the relay's own paths come to the socket."""
    raise RuntimeError(f"nothing but chat is served here, not {scope.get('path')}")
