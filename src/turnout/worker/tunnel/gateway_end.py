"""The gateway's end of tunnels: for each worker that holds one here, a port on loopback that leads to it.

The port is open to this machine, as a worker's own port would be; the worker's proxy asks for its token all the same. Its address
is one that no worker may give as its own: it would prove itself there, and later the port is another's.
"""

import asyncio
import contextlib
from collections.abc import Callable

from turnout.errors import Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.store.address_rules import TUNNELS
from turnout.telemetry.log import get_log
from turnout.worker.peer_connections import PeerConnections
from turnout.worker.tunnel.mux import Channel, Connection, Kind, Mux

log = get_log()


class GatewayTunnels:
    """One tunnel for each worker."""

    def __init__(self) -> None:
        self._ports: dict[WorkerId, int] = {}
        self._tunnels = PeerConnections[WorkerId]("tunnel")
        self.changed: Callable[[], None] = lambda: None

    def url(self, worker: WorkerId) -> str | None:
        """Where to find a worker that holds a tunnel to us."""
        port = self._ports.get(worker)
        return None if port is None else f"http://{TUNNELS}:{port}"

    async def hold(self, worker: WorkerId, channel: Channel) -> None:
        """Carries requests through the channel; returns when it is closed, or replaced."""
        await self._tunnels.hold(worker, self._carry(worker, channel))

    async def _carry(self, worker: WorkerId, channel: Channel) -> None:
        mux = Mux(channel, Kind.RESET)
        carried: set[asyncio.Task[None]] = set()

        async def called(*connection: *Connection) -> None:
            task = asyncio.current_task()
            assert task is not None
            carried.add(task)
            task.add_done_callback(carried.discard)
            with contextlib.suppress(asyncio.CancelledError):  # asyncio's server would log it
                await mux.carry(connection)

        server = await asyncio.start_server(called, str(TUNNELS), 0)
        port = self._ports[worker] = int(server.sockets[0].getsockname()[1])
        log.info("tunnel opened", worker=worker)
        self.changed()
        reason = "replaced"
        try:
            await mux.run()
        except Unavailable as err:
            reason = err.message
        finally:
            server.close()
            for task in carried:
                task.cancel()
            if self._ports.get(worker) == port:
                del self._ports[worker]
                self.changed()
            log.info("tunnel closed", worker=worker, reason=reason)
