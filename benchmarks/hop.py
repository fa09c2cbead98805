"""What the way through a worker's door costs: an engine asked directly, and through the door, by the same client.

`python -m benchmarks.hop [--seconds S]`, or `python -m benchmarks hop`.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import uvicorn
import uvloop

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure, cpu_s
from benchmarks.relay_parts import EVENTS, PATH, asked
from benchmarks.relay_peers import free_port
from turnout.adapters.relay import Relay
from turnout.domain.serving import EngineKind, ServedModel
from turnout.wiring.worker_desk import WorkerDesk, worker_relay_settings
from turnout.worker.hands import Hands
from turnout.worker.replicas import Replica, Visit
from turnout.worker.server import Door, control_app

_TOKEN = "bench"
_CONNECTIONS = (1, 32)
_WRK = """wrk.method = "POST"
wrk.headers["Authorization"] = "Bearer bench"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["X-Turnout-Replica"] = "r"
wrk.body = '%s'
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %%d %%d %%d %%d\\n", summary.requests, latency:percentile(50),
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class _ReadyReplica:
    """A replica whose engine is the upstream; it counts visits as a real one does."""

    model = ServedModel("bench", EngineKind.COMMAND, "", command=("bench", "{port}"))

    def __init__(self, address: str) -> None:
        self._address = address
        self.busy = 0

    def enter(self) -> Visit:
        self.busy += 1
        return Visit(cast(Replica, self), self._address)

    def tell(self, event: object) -> None:
        self.busy -= 1


class _OneReplica:
    def __init__(self, address: str) -> None:
        self._replica = _ReadyReplica(address)

    def find(self, replica: str) -> _ReadyReplica:
        return self._replica

    def reports(self) -> tuple[()]:
        return ()


async def run_door(port: int, to: int) -> None:
    door = Door(cast(Hands, _OneReplica(f"127.0.0.1:{to}")), lambda: _TOKEN)
    relay = Relay(WorkerDesk(door), worker_relay_settings())
    app = cast("Any", control_app(door))
    settings = uvicorn.Config(
        app, host="127.0.0.1", port=port, http=relay.protocol, log_config=None, access_log=False
    )
    await uvicorn.Server(settings).serve()


async def measure(seconds: int = 3) -> Table:
    """Latency and CPU that the worker's door adds to an engine that costs nothing: JSON and events."""
    table = Table(
        "The worker's door: one hop",
        ("load", "conns", "way", "req/s", "p50 ms", "p99 ms", "CPU µs of the door"),
    )
    pressure = Pressure()
    upstream, port = free_port(), free_port()
    async with (
        _part("benchmarks.relay_parts", "upstream", "--port", str(upstream)) as engine,
        _part("benchmarks.hop", "door", "--port", str(port), "--to", str(upstream)) as door,
    ):
        for name, kind in (("JSON", "whole"), (f"{EVENTS} events", "burst")):
            for connections in _CONNECTIONS:
                for way, at, process in (("direct", upstream, engine), ("door", port, door)):
                    say(f"{name}, {connections} connections, {way}")
                    before = cpu_s(process)
                    requests, p50_us, p99_us = await _load(at, kind, connections, seconds)
                    cpu_us = (cpu_s(process) - before) / requests * 1e6
                    shown = cpu_us if way == "door" else None
                    table.rows.append(
                        (name, connections, way, requests / seconds, p50_us / 1e3, p99_us / 1e3, shown)
                    )
    table.notes.append(pressure.note())
    return table


async def _load(port: int, kind: str, connections: int, seconds: int) -> tuple[int, int, int]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_WRK % asked(kind).decode().replace("'", "\\'"))
        script.flush()
        words = ("wrk", "-t1", f"-c{connections}", f"-d{seconds}", "-s", script.name)
        wrk = await asyncio.create_subprocess_exec(
            *words, f"http://127.0.0.1:{port}{PATH}", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(wrk.communicate(), seconds + 30)
    figures = next(line for line in out.decode().splitlines() if line.startswith("RESULT")).split()[1:]
    requests, p50_us, p99_us, failed = map(int, figures)
    if failed or not requests:
        raise RuntimeError(f"{failed} of {requests} requests failed")
    return requests, p50_us, p99_us


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
    parser.add_argument("part", nargs="?", choices=("door",), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=3, help="for each figure")
    options = parser.parse_args()
    if options.part == "door":
        uvloop.run(run_door(options.port, options.to))
    else:
        print(uvloop.run(measure(options.seconds)).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
