"""The routes of live events: server-sent events and WebSockets. What they send comes from `live_events`."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from operator import attrgetter
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query, Request, WebSocket, WebSocketDisconnect
from starlette.requests import HTTPConnection
from starlette.responses import Response, StreamingResponse

from turnout.errors import InvalidRequest, TurnoutError, Unauthorized, Unavailable
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented, is_open, refuse_socket
from turnout.relay.immediate_write import immediate_write
from turnout.tasks.event_json import EventJson
from turnout.tasks.live_events import CutOff, WriteNow
from turnout.tasks.signed_access import EventsDep
from turnout.tasks.video_routes import own_task
from turnout.tenants.caller import Caller, known, require_user
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.open_connections import name_caller

_FIRST_MESSAGE_S = 5.0
_PROTOCOL = "turnout"
_KEY_PROTOCOL = "turnout.key."
_EVENT_ID = re.compile(r"\d{1,20}(-\d{1,20})?")
_TRY_AGAIN_LATER = 1013
_ENDED = 1000
_PING, _PONG = "ping", '{"object":"video.alive"}'
_CHUNK, _FRAME = attrgetter("chunk"), attrgetter("frame")

router = APIRouter(tags=["events"])


def _checked_id(event_id: str | None, param: str) -> str | None:
    """None where there is none; an empty one is what some clients send before their first event."""
    if event_id and not _EVENT_ID.fullmatch(event_id):
        raise InvalidRequest(f"{param} is not an event's id.", param, "invalid_value")
    return event_id or None


@router.get(
    "/v1/videos/{video_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The task's story from the start, or after an event, until it ends.",
            "content": {"text/event-stream": {}},
        },
        204: {"description": "The task has ended, and the caller has heard everything."},
        **documented(400, 401, 403, 404, 429, 500, 503),
    },
    summary="Follow a video",
)
async def events(
    request: Request,
    task: EventsDep,
    gateway: GatewayDep,
    last_event_id: Annotated[str | None, Header()] = None,
    after: Annotated[str | None, Query(description="Like Last-Event-ID, for clients without it.")] = None,
) -> Response:
    start = _checked_id(last_event_id, "Last-Event-ID") or _checked_id(after, "after") or "0"
    live = gateway.videos.live
    if task.ended and not await live.story(task.id, start):
        return Response(status_code=204)  # which tells an EventSource not to come back
    headers = {"X-Accel-Buffering": "no"}
    batches = live.follow(task, start, _writer(request, _CHUNK))
    return StreamingResponse(_sse(batches), media_type="text/event-stream", headers=headers)


def _writer(connection: HTTPConnection, encoded: Callable[[EventJson], bytes]) -> WriteNow | None:
    write = immediate_write(connection.scope)
    return None if write is None else lambda event: write(encoded(event))


async def _sse(batches: AsyncGenerator[Sequence[EventJson]]) -> AsyncGenerator[bytes]:
    yield b"retry: 1000\n\n"
    try:
        async with aclosing(batches):
            async for batch in batches:
                yield b"".join(event.sse for event in batch) or b": still here\n\n"
    except (CutOff, Unavailable):
        return  # the client comes back with its Last-Event-ID


@router.websocket("/v1/videos/ws")
async def watch_all(socket: WebSocket, gateway: GatewayDep, after: str | None = None) -> None:
    """All of a tenant's tasks; `after` is the `cursor` of the last event that the client has."""
    if (caller := await _authenticate(socket, gateway.keys)) is None:
        return
    try:
        cursor = _checked_id(after, "after")
    except TurnoutError as err:
        return await refuse_socket(socket, err)
    await _accept(socket)
    live, write = gateway.videos.live, _writer(socket, _FRAME)
    await _stream(socket, live.follow_tenant(caller.tenant, caller.turn, cursor, write))


@router.websocket("/v1/videos/{video_id}/ws")
async def watch(socket: WebSocket, video_id: str, gateway: GatewayDep, after: str | None = None) -> None:
    """One task's story from the start, or after an event's id, until it ends."""
    if (caller := await _authenticate(socket, gateway.keys)) is None:
        return
    try:
        task = await own_task(gateway, caller, video_id)
        start = _checked_id(after, "after") or "0"
    except TurnoutError as err:
        return await refuse_socket(socket, err)
    await _accept(socket)
    await _stream(socket, gateway.videos.live.follow(task, start, _writer(socket, _FRAME)))


async def _authenticate(socket: WebSocket, keys: KeyRing) -> Caller | None:
    """Who is calling; None when it was refused. Keys never stand in the URL, where logs would keep them."""
    address = socket.client.host if socket.client else ""
    try:
        caller = await keys.identify("WEBSOCKET", _offered(socket), socket.headers.raw, address)
        if caller is None:
            await _accept(socket)
            said = await _first_message(socket)
            caller = await keys.identify("WEBSOCKET", said, socket.headers.raw, address)
        name_caller(socket, require_user(known(caller)))
        return caller
    except TurnoutError as err:
        await refuse_socket(socket, err)
    except WebSocketDisconnect:
        pass
    return None


def _offered(socket: WebSocket) -> bytes | None:
    """The Authorization header, or the one that stands for a key among the protocols."""
    given = socket.headers.get("authorization", "")
    if given[:7].lower() != "bearer ":
        offered = cast("list[str]", socket.scope.get("subprotocols", []))
        own = (p.removeprefix(_KEY_PROTOCOL) for p in offered if p.startswith(_KEY_PROTOCOL))
        given = next((f"Bearer {token}" for token in own), "")
    return given.encode("latin-1") or None


async def _first_message(socket: WebSocket) -> bytes:
    try:
        async with asyncio.timeout(_FIRST_MESSAGE_S):
            said: Any = json.loads(await socket.receive_text())
        return f"Bearer {said['key']}".encode()
    except (TimeoutError, ValueError, KeyError, TypeError, RecursionError) as err:
        raise Unauthorized('Send {"key": "tk-…"} first.', code="missing_api_key") from err


async def _accept(socket: WebSocket) -> None:
    if not is_open(socket):
        offered = cast("list[str]", socket.scope.get("subprotocols", []))
        await socket.accept(_PROTOCOL if _PROTOCOL in offered else None)


async def _stream(socket: WebSocket, batches: AsyncGenerator[Sequence[EventJson]]) -> None:
    """Sends until the story ends or the client leaves, whichever is first."""
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(_wait_disconnect(socket), name="client leaves")
        sending = group.create_task(_send_events(socket, batches), name="send events")
        await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
        left = leaving.done()
        leaving.cancel()
        sending.cancel()
    if not left:
        await socket.close(*sending.result())


async def _wait_disconnect(socket: WebSocket) -> None:
    """Returns when the client leaves. A page cannot see the protocol's own pings: it asks whether somebody is there."""
    while (said := await socket.receive())["type"] != "websocket.disconnect":
        if said.get("text") == _PING:
            with suppress(RuntimeError, WebSocketDisconnect):  # it is being closed
                await socket.send_text(_PONG)


async def _send_events(socket: WebSocket, batches: AsyncGenerator[Sequence[EventJson]]) -> tuple[int, str]:
    """The close code and its reason, once there is nothing more to send."""
    try:
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    await socket.send_text(event.text)
    except CutOff:
        return _TRY_AGAIN_LATER, "reconnect from the last event"
    except TurnoutError as err:
        return 4000 + err.status, err.message[:120]
    except WebSocketDisconnect:
        pass
    return _ENDED, "the video has ended"
