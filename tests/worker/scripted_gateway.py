"""A gateway that does as a test says: it registers workers, holds heartbeats open, dies and comes back."""

import asyncio
import socket
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, ReplicaReport
from turnout.fleet.worker_messages import Heartbeat, Registered, Registration, WorkerOrders

KEY = "worker-key"


@dataclass
class ScriptedGateway:
    heartbeat_s: float = 20.0
    key: str = KEY
    certificate: tuple[Path, Path] | None = None
    registrations: list[Registration] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    forgotten: bool = False
    refuse_known: bool = False
    holds: bool = False  # heartbeats until there is something to say, however long that is
    orders: WorkerOrders = field(default_factory=lambda: WorkerOrders(version=1, orders=()))
    port: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _server: uvicorn.Server | None = None
    _serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    @property
    def last(self) -> dict[ReplicaId, ReplicaReport]:
        """The replicas as the latest heartbeat told them."""
        return {report.id: report for report in self.heartbeats[-1].replicas} if self.heartbeats else {}

    def phase(self, replica: ReplicaId) -> Phase | None:
        report = self.last.get(replica)
        return report.phase if report else None

    async def order(self, *orders: ReplicaOrder, version: int | None = None) -> None:
        self.orders = WorkerOrders(version=version or self.orders.version + 1, orders=orders)
        await self.nudge()

    async def nudge(self) -> None:
        """Ends all heartbeats that are held open."""
        async with self._changed:
            self._changed.notify_all()

    async def start(self) -> None:
        """On the same port as before, if there was one."""
        app = Starlette(
            routes=[
                Route("/workers/register", self._register, methods=["POST"]),
                Route("/workers/{id}/heartbeat", self._heartbeat, methods=["POST"]),
            ]
        )
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = int(listening.getsockname()[1])
        tls = (
            {"ssl_certfile": self.certificate[0], "ssl_keyfile": self.certificate[1]}
            if self.certificate
            else {}
        )
        settings = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=0, **tls)  # type: ignore[arg-type]
        self._server = uvicorn.Server(settings)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))

    async def die(self) -> None:
        """Cuts every connection."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = self._server.force_exit = True
        await self.nudge()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]
        await asyncio.wait_for(self._serving, 10)
        self._server = None

    async def _register(self, request: Request) -> Response:
        if request.headers["authorization"] != f"Bearer {self.key}":
            return refusal(401, "unknown key")
        message = Registration.model_validate_json(await request.body())
        self.registrations.append(message)
        if self.refuse_known and message.known_as is not None:
            return refusal(403, "that name is taken")
        self.forgotten = False
        number = len(self.registrations)
        made = Registered(
            id=message.known_as or WorkerId(f"w{number}"),
            secret=f"secret{number}",
            heartbeat_s=self.heartbeat_s,
        )
        return JSONResponse(made.model_dump(mode="json"))

    async def _heartbeat(self, request: Request) -> Response:
        if self.forgotten or not request.headers["authorization"].startswith("Bearer secret"):
            return refusal(404, "no such worker")
        beat = Heartbeat.model_validate_json(await request.body())
        self.heartbeats.append(beat)
        if beat.seen == self.orders.version and beat.wait_s:
            try:
                async with asyncio.timeout(None if self.holds else beat.wait_s), self._changed:
                    await self._changed.wait()
            except TimeoutError:
                pass
        if self.forgotten:
            return refusal(404, "no such worker")
        return JSONResponse(self.orders.model_dump(mode="json"))


def refusal(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "x", "param": None, "code": None}}, status)
