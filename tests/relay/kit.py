"""Real sockets around a relay: replicas that do what a test says, an admission that counts, and a client that sends bytes."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields
from typing import Any

import uvicorn
from tests.pace import patient
from tests.ports import free_port
from uvicorn.server import ServerState

from turnout.errors import Unavailable
from turnout.relay import (
    ClientLimits,
    Relay,
    RelayFailure,
    RelayOutcome,
    RelayRequest,
    RelaySettings,
    Target,
    UpstreamCall,
    UpstreamLimits,
)

CHAT = b"/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
PATIENCE_S = patient(10.0)


@dataclass
class Request:
    """What a replica was asked."""

    line: bytes
    headers: dict[bytes, bytes]
    body: bytes


@dataclass
class Call:
    """One request at a replica, and the means to answer it."""

    request: Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def json(self, body: bytes, status: bytes = b"200 OK", extra: bytes = b"") -> None:
        await self.send(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b"
            % (status, len(body), extra, body)
        )

    async def begin_events(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def wait_hung_up(self) -> None:
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def die(self) -> None:
        self.writer.transport.abort()


async def echo(call: Call) -> None:
    await call.json(call.request.body)


def last_event(body: bytes) -> dict[str, dict[str, str]]:
    """The last event of a stream, which must be whole."""
    events = [one for one in body.split(b"\n\n") if one]
    assert body.endswith(b"\n\n") and events[-1].startswith(b"data: ")
    return json.loads(events[-1][6:])


Handler = Callable[[Call], Awaitable[None]]


class Replica:
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self.connections = 0
        self.hung_up = asyncio.Event()
        self.writers: set[asyncio.StreamWriter] = set()
        self.target = Target("127.0.0.1", 0)
        self.server: asyncio.Server | None = None

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port, limit=1 << 24, ssl=tls)
        self.target = Target("127.0.0.1", self.server.sockets[0].getsockname()[1], tls is not None)

    def stop(self) -> None:
        if self.server is not None:
            self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                await self.handler(Call(request, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.hung_up.set()
            self.writers.discard(writer)
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head[:-4].split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(b":") for one in rest)}
    return Request(line, headers, await reader.readexactly(int(headers.get(b"content-length", b"0"))))


@dataclass
class Counted(UpstreamCall):
    """A call that remembers what the relay told it."""

    admission: "CountingAdmission"
    to: Target
    ask: RelayRequest
    outcomes: list[RelayOutcome] = field(default_factory=list[RelayOutcome])
    first_bytes: int = 0

    def __post_init__(self) -> None:
        super().__init__(self.to, self.ask.path, b"x-inner: secret\r\n")

    def first_byte(self) -> None:
        self.first_bytes += 1

    def finished(self, outcome: RelayOutcome) -> None:
        self.outcomes.append(outcome)

    def retry(self) -> "UpstreamCall | Awaitable[UpstreamCall]":
        assert len(self.outcomes) == 1
        return self.admission.next_call(self.ask)


class CountingAdmission:
    """Sends each request to the next of `targets`; `admit_with` can replace that."""

    def __init__(self, *targets: Target) -> None:
        self.targets = list(targets)
        self.calls: list[Counted] = []
        self.asks: list[RelayRequest] = []
        self.turn = 0
        self.authenticated = 0
        self.authenticate_with: Callable[[bytes | None], Awaitable[object] | None] | None = None
        self.admit_with: Callable[[RelayRequest], UpstreamCall | Awaitable[UpstreamCall]] | None = None

    def account(self, authorization: bytes | None, headers: object) -> str:
        return (authorization or b"").decode()

    def authenticate(
        self, authorization: bytes | None, headers: Sequence[tuple[bytes, bytes]]
    ) -> Awaitable[object] | None:
        self.authenticated += 1
        return None if self.authenticate_with is None else self.authenticate_with(authorization)

    def admit(self, ask: RelayRequest) -> UpstreamCall | Awaitable[UpstreamCall]:
        self.asks.append(ask)
        return self.next_call(ask) if self.admit_with is None else self.admit_with(ask)

    def next_call(self, ask: RelayRequest) -> Counted:
        if not self.targets:
            raise Unavailable("No replica is left.", code="no_replica")
        call = Counted(self, self.targets[self.turn % len(self.targets)], ask)
        self.turn += 1
        self.calls.append(call)
        return call

    @property
    def outcomes(self) -> list[RelayOutcome]:
        return [one for call in self.calls for one in call.outcomes]

    @property
    def failures(self) -> list[RelayFailure | None]:
        return [outcome.error for outcome in self.outcomes]

    @property
    def settled(self) -> bool:
        return all(len(call.outcomes) == 1 for call in self.calls)


@dataclass
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    chunks: int = 0


class Broken(Exception):
    """The connection ended inside of an answer."""


class Client:
    """Speaks to the relay in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, body: bytes = b"{}", path: bytes = CHAT, extra: bytes = b"") -> None:
        self.send(post(body, path, extra))

    async def ask(self, body: bytes = b"{}", path: bytes = CHAT, extra: bytes = b"") -> Answer:
        self.post(body, path, extra)
        return await self.answer()

    async def head(self) -> tuple[int, dict[bytes, bytes]]:
        try:
            raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        except (asyncio.IncompleteReadError, ConnectionError) as err:
            raise Broken(str(err)) from err
        line, *rest = raw[:-4].split(b"\r\n")
        headers: dict[bytes, bytes] = {}
        for one in rest:
            name, _, value = one.partition(b":")
            assert name.lower() not in headers, f"{name!r} came twice"
            headers[name.lower()] = value.strip()
        return int(line.split()[1]), headers

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        try:
            size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), PATIENCE_S), 16)
            data = await asyncio.wait_for(self.reader.readexactly(size + 2), PATIENCE_S)
        except (asyncio.IncompleteReadError, ConnectionError) as err:
            raise Broken(str(err)) from err
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def answer(self) -> Answer:
        status, headers = await self.head()
        try:
            if headers.get(b"transfer-encoding") == b"chunked":
                chunks: list[bytes] = []
                while data := await self.chunk():
                    chunks.append(data)
                return Answer(status, headers, b"".join(chunks), len(chunks))
            if b"content-length" in headers:
                length = int(headers[b"content-length"])
                return Answer(
                    status, headers, await asyncio.wait_for(self.reader.readexactly(length), PATIENCE_S)
                )
            if status in (204, 304):
                return Answer(status, headers, b"")
            return Answer(status, headers, await asyncio.wait_for(self.reader.read(), PATIENCE_S))
        except (asyncio.IncompleteReadError, ConnectionError) as err:
            raise Broken(str(err)) from err

    async def closed(self) -> bool:
        """Whether the relay closes the connection without another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(1), PATIENCE_S) == b""
        except ConnectionError:
            return True

    def hang_up(self) -> None:
        self.writer.transport.abort()


def post(body: bytes = b"{}", path: bytes = CHAT, extra: bytes = b"") -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
        % (
            path,
            extra,
            len(body),
            body,
        )
    )


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """What is behind the relay: echoes a body, and says that it was the app. A socket is told who it is, unless its path
    is /never, which is not accepted."""
    if scope["type"] == "websocket":
        return await _socket_app(scope, receive, send)
    assert scope["type"] == "http"
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    text = b"app %b %b" % (scope["path"].encode(), body)
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def _socket_app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await receive()
    if scope["path"] == "/never":
        await asyncio.sleep(60)
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": scope["client"][0]})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": message.get("text", "")})


@dataclass
class Stand:
    """A relay that listens, and what stands around it."""

    relay: Relay
    admission: CountingAdmission
    port: int
    tasks: set[asyncio.Task[None]]  # the app's
    clients: list[Client] = field(default_factory=list[Client])
    replicas: list[Replica] = field(default_factory=list[Replica])

    async def client(self, **options: Any) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24, **options))
        self.clients.append(client)
        return client

    async def replica(self, handler: Handler) -> Replica:
        """A replica that the admission sends requests to."""
        replica = Replica(handler)
        await replica.start()
        self.replicas.append(replica)
        self.admission.targets.append(replica.target)
        return replica


def settings_of(**named: Any) -> RelaySettings:
    """Settings by the names of their fields, whichever part they are in."""

    def take(part: type[Any]) -> Any:
        return part(**{one.name: named.pop(one.name) for one in fields(part) if one.name in named})

    return RelaySettings(client=take(ClientLimits), upstream=take(UpstreamLimits), **named)


@asynccontextmanager
async def standing(settings: RelaySettings, tls: ssl.SSLContext | None = None) -> AsyncIterator[Stand]:
    admission = CountingAdmission()
    relay = Relay(admission, settings, tls)
    loop = asyncio.get_running_loop()
    config = uvicorn.Config(app, http=relay.protocol, log_config=None, access_log=False, lifespan="off")
    config.load()
    state = ServerState()
    listening = socket.create_server(("127.0.0.1", 0))

    def make() -> asyncio.Protocol:
        return relay.protocol(config=config, server_state=state, app_state={}, _loop=loop)  # type: ignore[call-arg]

    server = await loop.create_server(make, sock=listening)
    stand = Stand(relay, admission, listening.getsockname()[1], state.tasks)
    try:
        yield stand
    finally:
        for client in stand.clients:
            client.hang_up()
        server.close()
        relay.close()
        for replica in stand.replicas:
            replica.stop()
        for task in state.tasks.copy():
            task.cancel()


def free_target() -> Target:
    """Where nobody listens."""
    return Target("127.0.0.1", free_port())
