"""Workers that join a running service by the command that users run, and ways to reach them."""

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.conftest import wait_until
from tests.pace import patient
from tests.service import Service


class JoinedWorker:
    """One worker process; `start` it again after it was killed, as whatever keeps it running would."""

    def __init__(self, service: Service, home: Path, key: str, *options: str, **environ: str) -> None:
        self.home = home
        self.log = home.parent / f"{home.name}.log"
        self._argv = ["worker", "--state-dir", str(home), *options]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
        self._environ = {**inherited, "MANAGER_URL": service.url, "TURNOUT_JOIN_TOKEN": key, **environ}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> psutil.Process:
        assert self._process
        return psutil.Process(self._process.pid)

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "turnout", *self._argv, env=self._environ, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        assert self._process
        self._process.kill()
        await self._process.wait()

    async def ended(self, limit_s: float = 60.0) -> int:
        assert self._process
        return await asyncio.wait_for(self._process.wait(), patient(limit_s))

    async def stop(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.terminate()
            await self.ended()


@asynccontextmanager
async def joined(service: Service, home: Path, *options: str, **environ: str) -> AsyncIterator[JoinedWorker]:
    worker = JoinedWorker(service, home, await worker_key(service), *options, **environ)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def worker_key(service: Service) -> str:
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as http:
        answer = await http.post("/v1/keys", json={"tenant": "default", "role": "worker", "name": "test"})
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["token"])


async def list_workers(service: Service) -> list[dict[str, Any]]:
    """Those that take work."""
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as http:
        found = (await http.get("/workers")).json()["data"]
    return [w for w in found if w["standing"] == "alive" and not w["draining"]]


async def busy(service: Service) -> int:
    """The requests that workers count."""
    return sum(replica["busy"] for worker in await list_workers(service) for replica in worker["replicas"])


async def set_aside_its_own_worker(service: Service) -> None:
    """So that all replicas are on workers that joined."""

    async def is_there() -> bool:
        return len(await list_workers(service)) == 1

    await wait_until(is_there, "the service's own worker to join")
    [own] = await list_workers(service)
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as http:
        (await http.post(f"/workers/{own['id']}/drain", json={"draining": True})).raise_for_status()


@asynccontextmanager
async def forwarded(to: tuple[str, int], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port on loopback that leads to another address, as a port-forward or a TLS proxy would."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort() if tls else writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*to)
        except OSError:
            return writer.close()
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(carry, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    about = "-subj /CN=turnout -addext subjectAltName=IP:127.0.0.1 -days 2"
    made = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes {about}"
    subprocess.run([*made.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def server_side(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
