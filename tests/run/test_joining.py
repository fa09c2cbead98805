"""What a worker refuses, whoever its gateway is: real workers with a gateway that does harm."""

import asyncio
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from tests.conftest import wait_until
from tests.pace import patient
from tests.worker.scripted_gateway import KEY, ScriptedGateway
from tests.workers import self_signed
from websockets.asyncio.client import connect

from turnout.errors import Misconfigured
from turnout.fleet.model_rules import EngineKind, Model, ServerPart
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, Want
from turnout.run import run_worker
from turnout.run.client_tls import pinned_tls
from turnout.run.config import load
from turnout.run.joining import Joining, check_joining
from turnout.worker.advertised_url import check_advertised

R = ReplicaId("r1")


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


def command(ran: Path, *more: str) -> Model:
    words = ("touch", str(ran), f"{ran}-{{port}}", *more)
    return Model("m", EngineKind.COMMAND, "", server=ServerPart(command=words))


@asynccontextmanager
async def working(
    gateway: ScriptedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pin: str = "", **settings: Any
) -> AsyncIterator[asyncio.Task[None]]:
    leave: list[Callable[[], None]] = []
    monkeypatch.setattr(run_worker, "on_stop", leave.append)
    values = {"state_dir": str(tmp_path / "w"), "gang_fork_server": False, **settings}
    config = load(values, {}, None).config
    joining = Joining(gateway.url, KEY, "box", fingerprints=(pin,) if pin else ())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        run = asyncio.create_task(run_worker.run_engine_worker(config, joining, listening))
        try:
            yield run
        finally:
            if leave and not run.done():
                leave[0]()
            await asyncio.wait({run}, timeout=patient(20))


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({}, False),
        ({"worker_commands": ["touch /elsewhere {port}"]}, False),
        ({"worker_commands": ["touch RAN RAN-{port}"]}, True),
        ({"worker_commands": ["touch RAN RAN-{port}"], "worker_engines": ["llamacpp"]}, False),
        ({"allow_registered_commands": True}, True),
    ],
)
async def test_a_command_is_run_only_if_the_worker_itself_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], allowed: bool
) -> None:
    ran = tmp_path / "ran"
    if "worker_commands" in settings:
        settings = {
            **settings,
            "worker_commands": [c.replace("RAN", str(ran)) for c in settings["worker_commands"]],
        }
    gateway = ScriptedGateway(heartbeat_s=0.2)
    await gateway.start()
    try:
        async with working(gateway, tmp_path, monkeypatch, **settings):
            await gateway.order(ReplicaOrder(R, command(ran), (), Want.READY))
            await wait_until(lambda: gateway.phase(R) is Phase.FAILED, "the order to have an end")
            assert ("refuses the order" in gateway.last[R].detail) is not allowed
    finally:
        await gateway.die()
    assert ran.exists() is allowed


async def test_a_replica_cannot_name_a_file_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs and ready files are named after replicas."""
    gateway = ScriptedGateway(heartbeat_s=0.2)
    await gateway.start()
    outside = ReplicaId("../../../escaped")
    try:
        async with working(gateway, tmp_path, monkeypatch, allow_registered_commands=True):
            await gateway.order(ReplicaOrder(outside, command(tmp_path / "ran"), (), Want.READY))
            await wait_until(lambda: gateway.phase(outside) is Phase.FAILED, "the order to be refused")
    finally:
        await gateway.die()
    assert not list(tmp_path.rglob("escaped*")) and not (tmp_path / "ran").exists()


async def test_the_gateway_must_show_the_pinned_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path)
    shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest()
    openssl_form = ":".join(shown[i : i + 2] for i in range(0, 64, 2)).upper()
    gateway = ScriptedGateway(certificate=(certificate, key), heartbeat_s=0.2)
    await gateway.start()
    try:
        async with httpx.AsyncClient(verify=pinned_tls(frozenset({"0" * 64}))) as another:
            with pytest.raises(httpx.ConnectError, match=f"not the pinned one: it is sha256:{shown}"):
                await another.post(f"{gateway.url}/workers/register", json={})
        tunnel = gateway.url.replace("https", "wss")
        with pytest.raises(ssl.SSLCertVerificationError, match="not the pinned one"):
            await connect(tunnel, ssl=pinned_tls(frozenset({"0" * 64})))
        async with working(gateway, tmp_path, monkeypatch, pin=openssl_form):
            await wait_until(lambda: bool(gateway.heartbeats), "the worker to join")
    finally:
        await gateway.die()


@pytest.mark.parametrize(
    ("joining", "refusal"),
    [
        (Joining("http://198.51.100.7:8000", "k"), "not encrypted"),
        (Joining("http://gateway.example", "k"), "not encrypted"),
        (Joining("http://127.0.0.1:8000", "k"), None),
        (Joining("http://localhost:8000", "k"), None),
        (Joining("https://gateway.example", "k"), None),
        (Joining("http://gateway.example", "k", plaintext=True), None),
        (Joining("http://127.0.0.1", "k", fingerprints=("0" * 64,)), "no certificate"),
        (Joining("https://gateway.example", "k", fingerprints=("0" * 63,)), "SHA-256"),
        (Joining("ftp://gateway.example", "k"), "not the http or https URL"),
        (Joining("http://127.0.0.1:port", "k"), "not the http or https URL"),
        (Joining("http://[::1", "k"), "not the http or https URL"),
        (Joining("http://127.0.0.1", "jc-…"), "copy it again"),
        (Joining("http://127.0.0.1", "k", public_url="gpu.example:8100"), "--public-url"),
        (Joining("http://127.0.0.1", "k", public_url="http://127.0.0.1:9", tunnel=True), "not by both"),
        (Joining("http://127.0.0.1", "k", "../x"), "--id is up to 60"),
    ],
)
def test_a_worker_joins_over_tls_or_on_its_own_machine(joining: Joining, refusal: str | None) -> None:
    if refusal is None:
        return check_joining(joining)
    with pytest.raises(Misconfigured, match=refusal):
        check_joining(joining)


def test_an_address_that_means_here_to_whoever_reads_it_is_not_advertised() -> None:
    with pytest.raises(Misconfigured, match=r"0\.0\.0\.0 is no address"):
        check_advertised("http://0.0.0.0:8100")
