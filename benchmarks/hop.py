"""What the way through a worker's proxy costs: the same gateway, the same engine, through the proxy and directly.

`python -m benchmarks.hop [--seconds S]`, or `python -m benchmarks hop`. The gateway is the real one, with keys, limits,
routing, usage and metrics; two workers' doors stand before one engine that costs almost nothing, and one of them lets
the gateway go directly. Both take turns, second by second.
"""

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import httpx
import psutil
import uvicorn
import uvloop

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure, cpu_s
from benchmarks.relay_parts import EVENTS, PATH, asked
from benchmarks.relay_peers import free_port
from benchmarks.service import Service, front
from turnout.background import BackgroundLoops
from turnout.engines.servers.engine_servers import Launch
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind, Model, ServerPart
from turnout.fleet.publication import Publication
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.fleet.worker_rules import Enrolment
from turnout.relay import Relay
from turnout.run.open_stores import open_stores
from turnout.worker.direct_access import DirectAccess
from turnout.worker.proxy_admission import ProxyAdmission, worker_relay_settings
from turnout.worker.proxy_app import control_app
from turnout.worker.relay_tokens import relay_token_from_digest
from turnout.worker.replica_owner import InFlight, ReplicaOwner
from turnout.worker.replica_set import ReplicaSet

PROXY, DIRECT = "proxy", "direct"
_DIGEST = "0" * 64
_READY_S = 60.0
_CONNECTIONS = (1, 32)
# High enough that none of them refuses; all are counted.
_LIMITS = {
    "limit_chat_requests_per_minute": 100_000_000,
    "limit_chat_tokens_per_minute": 100_000_000_000,
    "limit_chat_concurrency": 10_000,
}
_WRK = """wrk.method = "POST"
wrk.headers["Authorization"] = "Bearer %s"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '%s'
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d\\n", summary.requests, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class _ReadyReplica:
    """A replica whose engine is the upstream; it counts requests as a real one does."""

    model = Model("bench", EngineKind.COMMAND, "", server=ServerPart(command=("bench", "{port}")))

    def __init__(self, name: str, port: int) -> None:
        self.id = ReplicaId(name)
        self._launch = Launch((), {}, port)
        self.busy = 0

    def admit(self) -> InFlight:
        self.busy += 1
        return InFlight(cast(ReplicaOwner, self), self._launch.address or "")

    def count_direct(self) -> InFlight:
        return self.admit()

    def direct_launch(self) -> Launch:
        return self._launch

    def apply(self, event: object) -> None:
        self.busy -= 1


class _OneReplica:
    def __init__(self, replica: _ReadyReplica) -> None:
        self._replica = replica

    def find(self, replica: str) -> _ReadyReplica:
        return self._replica

    def all(self) -> tuple[_ReadyReplica, ...]:
        return (self._replica,)

    def reports(self) -> tuple[()]:
        return ()


async def run_proxy(name: str, port: int, to: int) -> None:
    """A worker's proxy; only the one of that name lets the gateway call its engine directly."""
    hands = cast(ReplicaSet, _OneReplica(_ReadyReplica(name, to)))
    direct = DirectAccess(hands)
    direct.announce()
    admission = ProxyAdmission(hands, lambda: relay_token_from_digest(_DIGEST))
    relay = Relay(admission, worker_relay_settings())
    settings = uvicorn.Config(
        control_app(hands, admission, str),
        host="127.0.0.1",
        port=port,
        http=relay.protocol,
        ws="none",
        log_config=None,
        access_log=False,
    )
    listen = {"direct access": partial(direct.listen, f"http://127.0.0.1:{port}")}
    async with BackgroundLoops(listen if name == DIRECT else {}).running():
        await uvicorn.Server(settings).serve()


@dataclass(slots=True)
class _Figures:
    """Of one way: requests and CPU of gateway and proxy together, and each turn's latencies."""

    requests: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    p50_ms: list[float] = field(default_factory=list[float])
    p99_ms: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.requests * 1e6


async def measure(seconds: int = 4) -> Table:
    """Rate, latency and CPU of requests through a worker's proxy and directly to the engine: JSON and events."""
    table = Table(
        "The worker's proxy and the direct way",
        ("load", "conns", "way", "req/s", "p50 ms", "p99 ms", "CPU µs", "rate ×", "p50 ×", "CPU ×"),
    )
    pressure = Pressure()
    upstream, ports = free_port(), {PROXY: free_port(), DIRECT: free_port()}
    async with contextlib.AsyncExitStack() as stack:

        async def start(*words: str) -> psutil.Process:
            return await stack.enter_async_context(_part(*words))

        await start("benchmarks.relay_parts", "--port", str(upstream))
        doors = {
            way: await start("benchmarks.hop", way, "--port", str(port), "--to", str(upstream))
            for way, port in ports.items()
        }
        service = await stack.enter_async_context(front(("gateway",), None, **_LIMITS))
        await _lead_to(service, ports)
        for name, kind in (("JSON", "whole"), (f"{EVENTS} events", "burst")):
            for connections in _CONNECTIONS:
                say(f"{name}, {connections} connections")
                found = {PROXY: _Figures(), DIRECT: _Figures()}
                went = await _went_straight(service)
                for _ in range(seconds):
                    for way, figures in found.items():
                        processes = (service.parts["gateway"], doors[way])
                        await _turn(service, way, kind, connections, processes, figures)
                went = await _went_straight(service) - went
                if (
                    went < found[DIRECT].requests
                ):  # wrk leaves some requests unfinished, and does not count them
                    raise RuntimeError(f"{went} of {found[DIRECT].requests} requests went directly")
                table.rows.extend(_rows(name, connections, found))
    table.notes.append("CPU µs: of gateway and proxy together, a request. ×: direct relative to the proxy.")
    table.notes.append(pressure.note())
    return table


def _rows(name: str, connections: int, found: Mapping[str, _Figures]) -> list[Sequence[Any]]:
    def ratio(of: Callable[[_Figures], float]) -> float:
        return of(found[DIRECT]) / of(found[PROXY])

    rows: list[Sequence[Any]] = []
    for way, figures in found.items():
        row = (
            *(name, connections, way, figures.rate),
            *(median(figures.p50_ms), median(figures.p99_ms), figures.cpu_us),
        )
        compared = (ratio(lambda f: f.rate), ratio(lambda f: median(f.p50_ms)), ratio(lambda f: f.cpu_us))
        rows.append((*row, *(compared if way == DIRECT else (None, None, None))))
    return rows


async def _turn(
    service: Service,
    way: str,
    kind: str,
    connections: int,
    processes: Sequence[psutil.Process],
    figures: _Figures,
) -> None:
    """One second of load."""
    body = asked(kind).decode().replace('"bench"', f'"{way}"').replace("'", "\\'")
    before = sum(cpu_s(process) for process in processes)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_WRK % (service.api_key, body))
        script.flush()
        words = ("wrk", "-t1", f"-c{connections}", "-d1", "-s", script.name, f"{service.url}{PATH}")
        wrk = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        out, _ = await asyncio.wait_for(wrk.communicate(), 30)
    told = next(line for line in out.decode().splitlines() if line.startswith("RESULT")).split()[1:]
    requests, p50_us, p99_us, failed = map(int, told)
    if failed or not requests:
        raise RuntimeError(f"{failed} of {requests} requests failed")
    figures.requests += requests
    figures.seconds += 1
    figures.cpu_s += sum(cpu_s(process) for process in processes) - before
    figures.p50_ms.append(p50_us / 1e3)
    figures.p99_ms.append(p99_us / 1e3)


async def _lead_to(service: Service, ports: Mapping[str, int]) -> None:
    """Makes each way a model of its own, and waits until the gateway goes both."""
    async with open_stores(service.config) as stores:
        await stores.mutex.hold("fleet", "bench", 60)
        routes: dict[str, ModelRoutes | None] = {}
        for way, port in ports.items():
            worker, url = WorkerId(way), f"http://127.0.0.1:{port}"
            await stores.fleet.workers.enrol(Enrolment(worker, way, url, _DIGEST))
            routes[way] = ModelRoutes((Route(ReplicaId(way), worker, url, None),), 10_000)
        await stores.fleet.manager_state.publish("fleet", "bench", Publication(routes=routes))
    deadline = time.monotonic() + _READY_S
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, trust_env=False) as client:
        for way in ports:
            body = asked("whole").replace(b'"bench"', f'"{way}"'.encode())
            while (await client.post(PATH, content=body)).status_code != 200 or (
                way == DIRECT and not await _went_straight(service)
            ):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the gateway does not go the way {way}")
                await asyncio.sleep(0.05)


async def _went_straight(service: Service) -> int:
    async with httpx.AsyncClient(base_url=service.url, trust_env=False) as client:
        figures = (await client.get("/metrics")).text
    if re.search(rf'turnout_chat_direct_requests_total{{model="{PROXY}"}} [^0]', figures):
        raise RuntimeError("requests for the proxy went directly")
    found = re.search(rf'turnout_chat_direct_requests_total{{model="{DIRECT}"}} (\S+)', figures)
    return int(float(found[1])) if found else 0


@asynccontextmanager
async def _part(module: str, *words: str) -> AsyncGenerator[psutil.Process]:
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words, cwd=Path.cwd())
    port = int(words[words.index("--port") + 1])
    try:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield psutil.Process(child.pid)
    finally:
        child.kill()
        await child.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hop", description=__doc__)
    parser.add_argument("part", nargs="?", choices=(PROXY, DIRECT), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=4, help="for each way and load")
    options = parser.parse_args()
    if options.part:
        uvloop.run(run_proxy(options.part, options.port, options.to))
    else:
        print(uvloop.run(measure(options.seconds)).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
