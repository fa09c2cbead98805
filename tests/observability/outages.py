"""Eleven outages, made on purpose in a real `turnout up` with a real Prometheus: which alert fires, how soon, and where the
runbook tells what to do. `./dev outages` prints the table; names choose some of them.

Prometheus has the shipped rules, and scrapes every 5 seconds (`SCRAPE_S`; 15 in the shipped configuration, which makes an
alert up to 20 seconds later). GPUs stand in (tests/observability/nvml): everything else is as users run it.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.conftest import wait_until
from tests.observability.monitored import (
    GIB,
    MODELS,
    VIDEO,
    Prometheus,
    ask,
    client,
    monitored,
    render,
    set_gpus,
)
from tests.service import Service

SCRAPE_S = 5.0
_LIMIT_S = 400.0
_RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"


@dataclass(frozen=True)
class Scene:
    folder: Path
    service: Service
    prometheus: Prometheus
    http: httpx.AsyncClient
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)


@dataclass(frozen=True)
class Outage:
    """`before` is done in good times. `cause` makes it last, and is cancelled when the alert has fired."""

    name: str
    alert: str
    cause: Callable[[Scene], Coroutine[Any, Any, None]]
    settings: Callable[[Path], dict[str, Any]] = field(default=lambda _: {})
    before: Callable[[Scene], Awaitable[None]] | None = None
    state_mib: int | None = None  # the state directory is on a disk of its own


async def forever() -> None:
    await asyncio.Event().wait()


async def second_worker(scene: Scene) -> None:
    made = await scene.http.post("/v1/keys", json={"role": "worker", "name": "spare"})
    token = made.json()["token"]
    words = ["worker", "--join", scene.service.url, "--listen-port", "0"]
    environ = {"TURNOUT_STATE_DIR": str(scene.folder / "spare"), "TURNOUT_JOIN_TOKEN": token}
    with (scene.folder / "spare.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnout", *words, stdout=log, stderr=log, env={**os.environ, **environ}
        )
    scene.processes.append(process)

    async def joined() -> bool:
        workers = (await scene.http.get("/workers")).json()["data"]
        return sum(worker["heard_ago_s"] is not None for worker in workers) == 2

    await wait_until(joined, "the second worker to join", 60)


async def worker_gone(scene: Scene) -> None:
    """As when its machine loses power."""
    scene.processes[0].kill()
    await forever()


async def cannot_load(scene: Scene) -> None:
    answer = await render(scene.http, model="broken")
    assert answer.status_code == 200, answer.text
    await forever()


def broken_model(folder: Path) -> dict[str, Any]:
    weights = folder / "weights"
    weights.mkdir(parents=True, exist_ok=True)
    (weights / "model_index.json").write_text("{}")
    return {
        "models": {**MODELS, "broken": {**VIDEO, "weights": str(weights)}},
        "worker_weights_dirs": [str(weights)],
    }


async def redis_slow(scene: Scene) -> None:
    """It runs one tenth of the time, as beside a neighbour that takes the machine."""
    (redis,) = scene.service.parts("redis")
    try:
        while True:
            redis.suspend()
            await asyncio.sleep(0.27)
            redis.resume()
            await asyncio.sleep(0.03)
    finally:
        redis.resume()


async def redis_hung(scene: Scene) -> None:
    """It takes connections and answers nothing."""
    (redis,) = scene.service.parts("redis")
    redis.suspend()
    try:
        await forever()
    finally:
        redis.resume()


async def disk_full(scene: Scene) -> None:
    fill = scene.service.state_dir / "fill"
    free = psutil.disk_usage(str(scene.service.state_dir))
    await asyncio.to_thread(fill.write_bytes, bytes(int(free.free - free.total * 0.05)))
    try:
        await forever()
    finally:
        fill.unlink()


async def flood(scene: Scene) -> None:
    while True:
        await render(scene.http)
        await asyncio.sleep(0.1)


async def engine_crashes(scene: Scene) -> None:
    """Whenever it is up it dies."""
    while True:
        with contextlib.suppress(httpx.HTTPError):
            await ask(scene.http)
        for process in psutil.Process(scene.service.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if any("llamacpp" in word for word in words) and not any(
                    "subreaper" in word for word in words
                ):
                    process.kill()
        await asyncio.sleep(1)


async def stranger(scene: Scene) -> None:
    set_gpus(scene.folder, {"total": 8 * GIB, "free": 8 * GIB}, {"total": 8 * GIB, "free": 2 * GIB})
    await forever()


async def webhook_dead(scene: Scene) -> None:
    for _ in range(3):
        await render(scene.http, webhook_url="http://127.0.0.1:9/hook")
    await forever()


async def certificate_ends(scene: Scene) -> None:
    make_certificate(scene.folder, timedelta(seconds=5))
    await asyncio.sleep(5)
    await forever()


def make_certificate(folder: Path, lasts: timedelta) -> dict[str, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + lasts)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "tls.pem"
    fresh = folder / f"tls.{secrets.token_hex(4)}"
    fresh.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    fresh.replace(path)
    return {"tls_cert": str(path)}


async def manager_away(scene: Scene) -> None:
    """It hangs: one that dies is back in a second."""
    (manager,) = scene.service.parts("manager")
    manager.suspend()
    try:
        await forever()
    finally:
        manager.resume()


OUTAGES = (
    Outage("worker gone", "TurnoutWorkerSilent", worker_gone, before=second_worker),
    Outage("gang that cannot load", "TurnoutModelFailing", cannot_load, broken_model),
    Outage("Redis slow", "TurnoutRedisSlow", redis_slow),
    Outage("Redis hangs", "TurnoutRedisDown", redis_hung),
    Outage("disk nearly full", "TurnoutDiskNearlyFull", disk_full, state_mib=512),
    Outage(
        "queue flooded by one tenant",
        "TurnoutSubmissionsRefused",
        flood,
        lambda _: {"limit_submits_per_minute": 10},
    ),
    Outage("engine that crashes", "TurnoutModelFailing", engine_crashes),
    Outage("GPU memory held by a stranger", "TurnoutGpuMemoryHeldByOthers", stranger),
    Outage(
        "webhook target dead", "TurnoutWebhooksFailing", webhook_dead, lambda _: {"allow_private_urls": True}
    ),
    Outage(
        "certificate expired",
        "TurnoutCertificateExpired",
        certificate_ends,
        lambda folder: make_certificate(folder, timedelta(days=90)),
    ),
    Outage("manager away", "TurnoutManagerAway", manager_away),
)


@contextmanager
def small_disk(folder: Path, mib: int | None) -> Iterator[Path | None]:
    if mib is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    mount = folder / "disk"
    mount.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(mount)], check=True, timeout=30
    )
    try:
        yield mount / "state"
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True, timeout=30)


async def play(outage: Outage, folder: Path) -> tuple[float, set[str]]:
    """Seconds until the alert fired, and what else fired by then."""
    with small_disk(folder, outage.state_mib) as state:
        return await play_on(outage, folder, state)


async def play_on(outage: Outage, folder: Path, state: Path | None) -> tuple[float, set[str]]:
    async with (
        monitored(folder, SCRAPE_S, state, **outage.settings(folder)) as (service, prometheus),
        client(service) as http,
    ):
        scene = Scene(folder, service, prometheus, http)
        await wait_until(lambda: seen(prometheus), "the first scrapes", 60)
        quiet = await prometheus.firing()
        assert not quiet, f"{quiet} fires in good times"
        if outage.before is not None:
            await outage.before(scene)
        causing = asyncio.create_task(outage.cause(scene), name=outage.name)
        began_at = time.monotonic()
        try:
            while outage.alert not in (firing := await prometheus.firing()):
                if causing.done():
                    causing.result()
                if time.monotonic() - began_at > _LIMIT_S:
                    raise AssertionError(f"{outage.alert} did not fire; firing: {firing or 'nothing'}")
                await asyncio.sleep(0.5)
            return time.monotonic() - began_at, firing - {outage.alert}
        finally:
            causing.cancel()
            await asyncio.gather(causing, return_exceptions=True)
            for process in scene.processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def seen(prometheus: Prometheus) -> bool:
    return bool(await prometheus.query("count_over_time(turnout_redis_up[1m]) > 2"))


def runbook_line(alert: str) -> int:
    lines = _RUNBOOK.read_text().splitlines()
    return lines.index(f"### {alert}") + 1


async def main(names: list[str]) -> int:
    chosen = [outage for outage in OUTAGES if not names or any(n in outage.name for n in names)]
    print("| outage | alert | fired after | besides | runbook |\n| --- | --- | --- | --- | --- |", flush=True)
    failed = 0
    for outage in chosen:
        line = f"docs/runbook.md:{runbook_line(outage.alert)}"
        with tempfile.TemporaryDirectory(prefix="outage-") as folder:
            try:
                seconds, others = await play(outage, Path(folder) / "up")
                took = f"{seconds:.0f} s"
            except (Exception, pytest.fail.Exception) as err:  # noqa: BLE001 - the table tells, the rest is played
                failed += 1
                took, others = f"**never** ({type(err).__name__}: {str(err)[:200]})", set()
        besides = ", ".join(sorted(others)) or "–"
        print(f"| {outage.name} | {outage.alert} | {took} | {besides} | {line} |", flush=True)
    return failed


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(asyncio.run(main(sys.argv[1:])))
