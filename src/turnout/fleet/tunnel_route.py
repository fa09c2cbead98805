"""The route for tunnels: a worker that no gateway can reach connects here with its own secret, and is called through it."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, WebSocket

from turnout.errors import Forbidden, TurnoutError, Unavailable
from turnout.fleet.worker_routes import evicted, identify_worker
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import refuse_socket
from turnout.worker.peer_connections import WebSocketChannel

_TAKE_S = 10.0

router = APIRouter(tags=["workers"])


@router.websocket("/workers/{worker_id}/tunnel")
async def tunnel(
    socket: WebSocket,
    worker_id: str,
    gateway: GatewayDep,
    authorization: Annotated[str | None, Header()] = None,
) -> None:
    """We say our name; the worker takes the tunnel with a message, or hangs up because it has one to us already."""
    try:
        worker = await identify_worker(gateway, worker_id, authorization)
    except TurnoutError as err:
        return await refuse_socket(socket, gateway.keys.throttle.counted(socket.client, err))
    await socket.accept()
    channel = WebSocketChannel(socket)
    try:
        await channel.send(gateway.name.encode())
        async with asyncio.timeout(_TAKE_S):
            await channel.receive()
    except (Unavailable, TimeoutError):
        return
    try:
        async with gateway.revocations.workers.within(worker.id, evicted()):
            await gateway.workers.tunnels.hold(worker.id, channel)
    except Forbidden as err:
        await refuse_socket(socket, err)
