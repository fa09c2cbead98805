"""The door for tunnels: a worker that nobody can reach connects here with its own secret, and is called through it."""

import asyncio
from typing import Annotated, cast

from fastapi import APIRouter, Header, WebSocket

from turnout.domain.errors import TurnoutError, Unavailable
from turnout.gateway.chat.routes_feed import RoutesFeed
from turnout.gateway.parts import PartsDep
from turnout.gateway.videos.event_streams import refuse
from turnout.gateway.workers.worker_routes import identify_worker
from turnout.peer_connections import WebSocketChannel

_TAKE_S = 10.0

router = APIRouter(tags=["workers"])


@router.websocket("/workers/{worker_id}/tunnel")
async def tunnel(
    socket: WebSocket, worker_id: str, parts: PartsDep, authorization: Annotated[str | None, Header()] = None
) -> None:
    """We say our name; the worker takes the tunnel with a message, or hangs up because it has one to us already."""
    try:
        worker = await identify_worker(parts, worker_id, authorization)
    except TurnoutError as err:
        return await refuse(socket, err)
    await socket.accept()
    channel = WebSocketChannel(socket)
    try:
        await channel.send(cast(RoutesFeed, socket.app.state.lines).name.encode())
        async with asyncio.timeout(_TAKE_S):
            await channel.receive()
    except (Unavailable, TimeoutError):
        return
    await parts.tunnels.hold(worker.id, channel)
