"""The gateway beside nginx, haproxy and other routers: the same upstream, the same client, the same run.

`python -m benchmarks.relay [--peers NAME…] [--seconds S]`, or `python -m benchmarks relay`. The gateway is the real one, a
process of its own with keys, limits, routing, usage and metrics; a route leads to the upstream as to a worker's proxy.
`--traces` measures what traces cost instead: the same gateway with traces off and on, each compared with the first.
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import mean, median, stdev

import httpx
import psutil
import uvloop

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure, cpu_s
from benchmarks.relay_parts import EVENTS, PATH, asked
from benchmarks.relay_peers import PEERS, Command, free_port, haproxy, install, nginx
from benchmarks.service import Service, front, of_checkout
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import Publication
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.fleet.worker_rules import Enrolment
from turnout.run.open_stores import open_stores

_CONNECTIONS = (1, 32, 128)
_READY_S = 60.0
# High enough that none of them refuses; all are counted.
LIMITS = {
    "limit_chat_requests_per_minute": 100_000_000,
    "limit_chat_tokens_per_minute": 100_000_000_000,
    "limit_chat_concurrency": 10_000,
}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    kind: str
    seconds: int
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class Figures:
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


@dataclass(slots=True)
class Proxy:
    name: str
    port: int
    process: psutil.Process


async def measure(peers: Sequence[str] = tuple(PEERS), seconds: int = 2, beside: Path | None = None) -> Table:
    """Requests/s, added latency and CPU per request of the gateway and other proxies: JSON and events. `beside` is
    another checkout whose gateway takes part, to see what a change costs."""
    notes: list[str] = []
    missing = await _install_tools(("wrk", "nginx", "haproxy"), {"nginx": "nginx-light"})
    if "wrk" in missing:
        raise SystemExit("wrk is missing and could not be installed (apt-get install wrk)")
    cases = (
        Case("JSON", "whole", seconds),
        Case(f"{EVENTS} events", "burst", seconds),
        Case("20 ms apart", "paced", max(3, seconds), rounds=1),
    )
    pressure = Pressure()
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as made:
        workplace = Path(made)
        upstream = free_port()
        async with contextlib.AsyncExitStack() as stack:

            async def start(name: str, command: Command, port: int) -> Proxy | None:
                try:
                    return await stack.enter_async_context(started(name, command, port))
                except (OSError, TimeoutError) as err:
                    notes.append(f"{name} is left out: {err}")
                    return None

            python = sys.executable
            engine = Command([python, "-m", "benchmarks.relay_parts", "--port", str(upstream)])
            proxies = [await start("direct", engine, upstream)]
            keys: dict[str, str] = {}
            gateways: dict[str, dict[str, str]] = {"turnout": {}}
            if beside is not None:
                gateways["beside"] = of_checkout(beside)
            for name, environ in gateways.items():
                service = await stack.enter_async_context(front(("gateway",), environ, **LIMITS))
                await lead_to(service, upstream)
                proxies.append(Proxy(name, service.port, service.parts["gateway"]))
                keys[name] = service.api_key
            for name, make in (("nginx", nginx), ("haproxy", haproxy)):
                if name in missing:
                    notes.append(f"{name} is left out: it is missing and could not be installed.")
                    continue
                port = free_port()
                proxies.append(await start(name, make(workplace, port, upstream), port))
            for name in peers:
                try:
                    home = await install(name)
                except OSError as err:
                    notes.append(f"{name} is left out: {err}")
                    continue
                port = free_port()
                proxies.append(await start(name, PEERS[name].command(home, workplace, port, upstream), port))
            table = Table(
                "Relay: one core each, the same upstream",
                (
                    "load",
                    "conns",
                    "proxy",
                    "req/s",
                    "p50 ms",
                    "p99 ms",
                    "+p50",
                    "+p99",
                    "CPU µs",
                    "CPU ×",
                    "rate ×",
                ),
                notes=notes,
            )
            running = [proxy for proxy in proxies if proxy is not None]
            for case in cases:
                scripts = {
                    proxy.name: _wrk_script(workplace, case.kind, keys.get(proxy.name, "none"))
                    for proxy in running
                }
                for connections in _CONNECTIONS:
                    say(f"{case.name}, {connections} connections")
                    await _compare(table, case, connections, running, scripts)
    notes.append(
        "+p50, +p99: what the proxy adds to the upstream's own latency. CPU ×, rate ×: relative to nginx."
    )
    notes.append(
        "turnout is the gateway's own process: key, three limits, routing, usage and metrics for each request."
    )
    notes.append(pressure.note())
    return table


async def measure_traces(seconds: int = 3, rounds: int = 12) -> Table:
    """CPU of a request with traces off, and on for 1 % and for all requests, in turns. Each load has a gateway of its own:
    two processes of the same gateway differ by more than what is looked for."""
    samples = {"off": None, "off, again": None, "on, 1 %": 0.01, "on, all": 1.0}
    table = Table(
        "Traces: CPU of the gateway", ("load", "conns", "traces", "req/s", "p99 ms", "CPU µs", "× off", "±")
    )
    upstream, pressure, connections = free_port(), Pressure(), 32
    engine = Command([sys.executable, "-m", "benchmarks.relay_parts", "--port", str(upstream)])
    cases = (Case("JSON", "whole", seconds), Case("events", "burst", seconds))
    found: dict[tuple[str, str], list[Figures]] = {(c.name, name): [] for c in cases for name in samples}
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as made:
        async with started("direct", engine, upstream):
            for number in range(rounds):
                for name, sample in list(samples.items())[:: -1 if number % 2 else 1]:
                    traces = {
                        "traces_endpoint": f"http://127.0.0.1:{upstream}/v1/traces",
                        "traces_sample": sample,
                    }
                    settings = LIMITS if sample is None else LIMITS | traces
                    async with front(("gateway",), None, **settings) as service:
                        await lead_to(service, upstream)
                        proxy = Proxy(name, service.port, service.parts["gateway"])
                        for case in cases:
                            script = _wrk_script(Path(made), case.kind, service.api_key)
                            found[case.name, name].append(await _load(proxy, case, connections, script))
                say(f"round {number + 1} of {rounds}")
    for (load, name), figures in found.items():
        one = _median(figures)
        times = [a.cpu_us / b.cpu_us for a, b in zip(figures, found[load, "off"], strict=True)]
        table.rows.append(
            (
                load,
                connections,
                name,
                one.rate,
                one.p99_ms,
                one.cpu_us,
                mean(times),
                stdev(times) / rounds**0.5,
            )
        )
    table.notes.append(
        f"Medians of {rounds} rounds; × off: the mean of each round's own ratio, and its standard error. Each figure of a"
        " round is of a process of its own."
    )
    table.notes.append(pressure.note())
    return table


async def _compare(
    table: Table, case: Case, connections: int, proxies: Sequence[Proxy], scripts: Mapping[str, Path]
) -> None:
    rounds: dict[str, list[Figures]] = {proxy.name: [] for proxy in proxies}
    for _ in range(case.rounds):  # in turns, so that a machine that is slow for a while is so for all
        for proxy in proxies:
            try:
                rounds[proxy.name].append(await _load(proxy, case, connections, scripts[proxy.name]))
            except RuntimeError as err:
                table.notes.append(f"{case.name}, {connections}: {err}")
    found = {name: _median(figures) for name, figures in rounds.items() if figures}
    base, nginx_figures = found.get("direct"), found.get("nginx")
    for name, figures in found.items():
        compared = nginx_figures if name != "direct" else None
        table.rows.append(
            (
                case.name,
                connections,
                name,
                figures.rate,
                figures.p50_ms,
                figures.p99_ms,
                figures.p50_ms - base.p50_ms if base and name != "direct" else None,
                figures.p99_ms - base.p99_ms if base and name != "direct" else None,
                figures.cpu_us,
                figures.cpu_us / compared.cpu_us if compared and compared.cpu_us else None,
                figures.rate / compared.rate if compared else None,
            )
        )


def _median(rounds: Sequence[Figures]) -> Figures:
    """Of each figure by itself."""
    columns = zip(*(astuple(figures) for figures in rounds), strict=True)
    return Figures(*(median(column) for column in columns))


async def _load(proxy: Proxy, case: Case, connections: int, script: Path) -> Figures:
    family = [proxy.process, *proxy.process.children(recursive=True)]
    before = sum(cpu_s(process) for process in family)
    url = f"http://127.0.0.1:{proxy.port}{PATH}"
    command = (
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{case.seconds}",
        "--timeout",
        "10",
        "-s",
        str(script),
        url,
    )
    wrk = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(wrk.communicate(), case.seconds + 30)
    used_s = sum(cpu_s(process) for process in family) - before
    words = next((line for line in out.decode().splitlines() if line.startswith("RESULT")), "").split()
    if len(words) != 6 or words[1] == "0" or words[5] != "0":
        raise RuntimeError(f"{proxy.name} did not answer all requests: {' '.join(words) or 'no figures'}")
    requests, duration_us, p50_us, p99_us = map(int, words[1:5])
    return Figures(requests / duration_us * 1e6, p50_us / 1e3, p99_us / 1e3, used_s / requests * 1e6)


def _wrk_script(workplace: Path, kind: str, key: str) -> Path:
    script = workplace / f"{key[-8:]}.lua"
    body = asked(kind).decode().replace("'", "\\'")
    script.write_text(
        f"""wrk.method = "POST"
wrk.headers["Authorization"] = "Bearer {key}"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{body}'
done = function(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), failed))
end
"""
    )
    return script


async def lead_to(service: Service, upstream: int) -> None:
    """Registers the upstream as a worker with one replica, and waits until the gateway sends requests there."""
    worker, url = WorkerId("bench"), f"http://127.0.0.1:{upstream}"
    async with open_stores(service.config) as stores:
        await stores.fleet.workers.enrol(Enrolment(worker, "bench", url, "0" * 64))
        await stores.mutex.hold("fleet", "bench", 60)
        routes = ModelRoutes((Route(ReplicaId("bench"), worker, url, None),), 10_000)
        await stores.fleet.manager_state.publish("fleet", "bench", Publication(routes={"bench": routes}))
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, trust_env=False) as client:
        deadline = time.monotonic() + _READY_S
        while (await client.post(PATH, content=asked("whole"))).status_code != 200:
            if time.monotonic() > deadline:
                raise RuntimeError("the gateway does not reach the upstream")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def started(name: str, command: Command, port: int) -> AsyncGenerator[Proxy]:
    """A child process that listens on `port`; raises OSError when it does not come up."""
    say(f"starting {name}")
    with tempfile.TemporaryFile() as log:
        child = await asyncio.create_subprocess_exec(
            *command.words, stdout=log, stderr=log, env=os.environ | command.environment
        )
        try:
            deadline = time.monotonic() + _READY_S
            while not _listens(port):
                if child.returncode is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise OSError(f"it did not start: {log.read()[-300:].decode(errors='replace')}")
                await asyncio.sleep(0.05)
            await asyncio.sleep(command.settle_s)
            yield Proxy(name, port, psutil.Process(child.pid))
        finally:
            if child.returncode is None:
                child.terminate()
                try:
                    await asyncio.wait_for(child.wait(), 5)
                except TimeoutError:
                    child.kill()
                    await child.wait()


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


async def _install_tools(tools: Sequence[str], packages: dict[str, str]) -> set[str]:
    """Debian's packages for what is missing; returns what still is."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [tool for tool in tools if shutil.which(tool, path=path) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing {', '.join(missing)}")
        words = (
            "apt-get",
            "install",
            "-y",
            "--no-install-recommends",
            *[packages.get(t, t) for t in missing],
        )
        for before in ((), ("apt-get", "update")):
            if before:
                await _quietly(before)
            if await _quietly(words) == 0:
                break
    return {tool for tool in missing if shutil.which(tool, path=path) is None}


async def _quietly(words: Sequence[str]) -> int:
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*words, stdout=quiet, stderr=quiet)
    return await child.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay", description=__doc__)
    parser.add_argument(
        "--peers", nargs="*", default=list(PEERS), choices=sorted(PEERS), help="other routers to measure"
    )
    parser.add_argument("--seconds", type=int, default=2, help="for each figure")
    parser.add_argument("--beside", type=Path, help="another checkout to measure in the same run")
    parser.add_argument("--traces", action="store_true", help="what traces cost, and nothing else")
    options = parser.parse_args()
    if options.traces:
        print(uvloop.run(measure_traces()).text())
        return 0
    print(uvloop.run(measure(options.peers, options.seconds, options.beside)).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
