"""The gateway behind TLS: its certificate changes without a restart, and a broken one changes nothing."""

import asyncio
import json
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import uvicorn
import uvloop
import websockets
from tests.conftest import Stores, wait_until
from tests.gateways import bearer, chatting
from tests.relay.kit import echo
from tests.service import Service
from tests.workers import self_signed

from turnout.errors import Misconfigured
from turnout.gateway.gateway_settings import GatewaySettings
from turnout.relay import ClientLimits
from turnout.relay.connection_counts import ConnectionCounts
from turnout.run.client_tls import client_tls
from turnout.run.run_gateway import relay_settings
from turnout.run.tls import ServerTls, TlsListener, add_listener


def renewed(folder: Path, name: str) -> tuple[Path, Path]:
    (folder / name).mkdir()
    return self_signed(folder / name)


def serial_of(port: int, trusted: Path) -> str:
    """Of the certificate that a new connection is shown, by a client that names no server."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        client_tls(trusted).wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        found = secure.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


@asynccontextmanager
async def secured(
    stores: Stores, tmp_path: Path, tls: ServerTls, **changes: Any
) -> AsyncIterator[tuple[int, str]]:
    """A gateway with its relay on a TLS port, as in the product; the port and a user's key."""
    async with chatting(stores, tmp_path, **changes) as chat:
        await chat.replica(echo)
        relay = chat.gateway.inside.chat.relay
        settings = uvicorn.Config(
            chat.gateway.app, http=relay.protocol, ws="websockets-sansio", lifespan="off", log_level="error"
        )

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup([])
                await add_listener(self, listener, tls.context, relay.counts)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = Server(settings)
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve(sockets=[listener]))
                await wait_until(lambda: server.started and bool(server.servers), "the server")
                try:
                    yield listener.getsockname()[1], chat.gateway.token
                finally:
                    relay.close()
                    server.should_exit = True


async def test_a_new_certificate_is_shown_without_dropping_a_connection(
    stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    (cert, key), (cert2, key2) = renewed(tmp_path, "a"), renewed(tmp_path, "b")
    tls = ServerTls(cert, key, lambda: clock[0])
    old = cert.read_bytes()
    async with secured(stores, tmp_path, tls) as (port, token):
        url, both = f"https://127.0.0.1:{port}", tmp_path / "both.pem"
        both.write_bytes(old + cert2.read_bytes())
        first = await asyncio.to_thread(serial_of, port, both)
        async with httpx.AsyncClient(
            base_url=url, verify=client_tls(both), headers=bearer(token), timeout=30
        ) as kept:
            chat = {"model": "m", "messages": [{}]}
            assert (await kept.post("/v1/chat/completions", json=chat)).status_code == 200  # the relay
            assert (await kept.get("/v1/models")).status_code == 200  # what is behind it
            socket_url = f"wss://127.0.0.1:{port}/v1/videos/ws"
            async with websockets.connect(
                socket_url, ssl=client_tls(both), additional_headers=bearer(token)
            ) as ws:
                cert.write_text("not a certificate")
                clock[0] += 2
                assert await asyncio.to_thread(serial_of, port, both) == first
                cert.write_bytes(cert2.read_bytes())  # the key does not fit yet
                clock[0] += 2
                assert await asyncio.to_thread(serial_of, port, both) == first
                assert capsys.readouterr().err.count("certificate not reloaded") == 2
                key.write_bytes(key2.read_bytes())
                clock[0] += 2
                second = await asyncio.to_thread(serial_of, port, both)
                assert second != first
                cert.unlink()
                clock[0] += 2
                assert await asyncio.to_thread(serial_of, port, both) == second
                assert (await kept.post("/v1/chat/completions", json=chat)).status_code == 200
                await (await ws.ping())


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
async def test_tls_before_1_2_and_plain_http_are_refused(stores: Stores, tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    async with secured(stores, tmp_path, ServerTls(cert, key, lambda: 0.0)) as (port, _):
        ancient = client_tls(cert)
        ancient.minimum_version = ancient.maximum_version = ssl.TLSVersion.TLSv1_1
        ancient.set_ciphers("ALL:@SECLEVEL=0")
        async with httpx.AsyncClient(verify=ancient) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"https://127.0.0.1:{port}/health")
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.TransportError):
                await client.get(f"http://127.0.0.1:{port}/health")


def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path) -> None:
    (cert, _), (_, other) = renewed(tmp_path, "a"), renewed(tmp_path, "b")
    with pytest.raises(Misconfigured, match="No such file"):
        ServerTls(cert, tmp_path / "none", lambda: 0.0)
    with pytest.raises(Misconfigured, match="key values mismatch"):
        ServerTls(cert, other, lambda: 0.0)


async def test_the_service_and_its_clients_work_behind_tls(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    service = Service(tmp_path / "state", {"models": {}}, ["--tls-cert", str(cert), "--tls-key", str(key)])
    await service.start()  # its parts, and clients on this machine, use loopback
    try:
        public = next(word for word in service.output.read_text().split() if word.startswith("https://"))

        async def cli(*words: str) -> tuple[int, str]:
            keys = {"TURNOUT_API_KEY": service.api_key, "TURNOUT_URL": public}
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "turnout", *words),
                env={**os.environ, **keys},
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await process.communicate()
            return process.returncode or 0, out.decode()

        async def joined() -> bool:
            code, out = await cli("workers", "list", "--json", "--ca-file", str(cert))
            return code == 0 and len(json.loads(out)["data"]) == 1

        await wait_until(joined, "the worker to join, as a client sees through TLS", 60)
        code, out = await cli("models", "list")
        assert code == 1 and "--ca-file" in out and out.count("\n") == 1, out
    finally:
        await service.stop()


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_a_connection_in_its_handshake_counts_for_its_address(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    cert, key = self_signed(tmp_path)
    counts = ConnectionCounts(ClientLimits(max_connections_per_address=3))

    class Counted(asyncio.Protocol):
        """As the relay's: it counts itself when its handshake is over."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            counts.end_handshake(transport.get_extra_info("peername"))
            assert counts.enter("127.0.0.1")
            cast("asyncio.Transport", transport).write(b"hello")

        def connection_lost(self, exc: Exception | None) -> None:
            counts.leave("127.0.0.1")

    async def greeted(port: int) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls(cert))
            said = await reader.read(5)
            writer.close()
            return said == b"hello"
        except OSError:
            return False

    async def scene() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        listener = TlsListener(listening, ServerTls(cert, key, lambda: 0.0).context, counts, Counted)
        listener.start(100)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await wait_until(lambda: counts.total == 3, "all three are counted, though none has said anything")
        assert not await greeted(port)
        silent[0][1].close()  # it leaves
        silent[1][1].write(b"GET / HTTP/1.1\r\n\r\n")  # it speaks no TLS
        await wait_until(lambda: counts.total == 1, "two have room again")
        for _ in range(3):
            assert await greeted(port)
        await wait_until(lambda: counts.total == 1, "who was greeted has left")
        listener.close()
        await listener.wait_closed()
        silent[2][1].close()
        assert counts.total == 0

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())


def test_where_few_files_may_be_open_one_address_gets_half_of_the_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnout.run.run_gateway.raise_open_files", lambda: 1024)
    limits = relay_settings(GatewaySettings()).client
    assert (limits.max_connections, limits.max_connections_per_address) == (768, 384)
    few = relay_settings(GatewaySettings(max_connections=10, max_connections_per_address=10)).client
    assert (few.max_connections, few.max_connections_per_address) == (10, 10)


async def test_idle_connections_of_one_address_do_not_fill_a_gateway_behind_tls(
    stores: Stores, tmp_path: Path
) -> None:
    cert, key = self_signed(tmp_path)
    tls = ServerTls(cert, key, lambda: 0.0)
    async with secured(stores, tmp_path, tls, max_connections_per_address=4) as (port, _):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        with pytest.raises(OSError):  # it is closed before its handshake
            await asyncio.open_connection("127.0.0.1", port, ssl=client_tls(cert))
        other = ("127.0.0.2", 0)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_tls(cert), local_addr=other
        )
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        for _, mine in idle:
            mine.close()
        writer.close()
