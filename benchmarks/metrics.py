"""What metrics cost: for each request and event, and for a scrape of a large fleet."""

import asyncio
import resource
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import httpx

from benchmarks import submit
from benchmarks.events import RATE, Helper, be_rank, submit_one
from benchmarks.figures import Table, say
from benchmarks.load import Target, http_length, http_request
from benchmarks.machine import cpu_s
from benchmarks.relay import LIMITS, lead_to, started
from benchmarks.relay_parts import PATH, asked
from benchmarks.relay_peers import Command, free_port
from benchmarks.service import Service, front
from benchmarks.sockets import Socket
from turnout.chat.chat_figures import ModelFigures
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.model_store import ModelStore
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaReport
from turnout.fleet.worker_rules import Enrolment, StoredHeartbeat
from turnout.fleet.worker_store import WorkerStore
from turnout.run.open_stores import embedded_redis_dir
from turnout.store.connection import RedisConnection
from turnout.store.valkey import redis_url
from turnout.tasks.task_rules import Progressed, Recorded, Stage, TaskId, TenantId
from turnout.telemetry.metrics import RequestFigures

WORKERS, GPUS, MODELS = 1_000, 8, 500
CALLS, ROUNDS = 20_000, 5
REQUESTS_A_S = 1_000
SCRAPE_EVERY_S = 15
# What the same gateway spends on each, from docs/benchmarks.md: the least, so that the share is not flattered.
SUBMISSION_US, CHAT_US, WATCHED_EVENT_US = 300.0, 28.0, 12.0
WATCHERS = 1_000
LOADS, LOAD_S = 40, 3  # a gateway counts for so many times so many seconds, and for as many it does not


async def measure() -> Table:
    """What metrics cost a request, an event, and a scrape of 1,000 workers and 500 models."""
    table = Table("metrics: CPU of the gateway", ("what", "costs", "beside", "share"))
    submission_us = _submission_us()
    table.rows.append(
        (
            "a submission",
            f"{submission_us:.1f} µs",
            f"all of it, {SUBMISSION_US:.0f} µs",
            _share(submission_us, SUBMISSION_US),
        )
    )
    chat_us = _chat_us()
    table.rows.append(
        (
            "a chat request",
            f"{chat_us:.1f} µs",
            f"a relayed request, {CHAT_US:.0f} µs",
            _share(chat_us, CHAT_US),
        )
    )
    event_us = _event_us()
    fan_out_us = WATCHERS * WATCHED_EVENT_US
    table.rows.append(
        (
            f"an event with {WATCHERS:,} watchers",
            f"{event_us:.1f} µs",
            f"its fan-out, {fan_out_us:.0f} µs",
            _share(event_us, fan_out_us),
        )
    )
    counting, silent = await _loaded()
    shares = [a / b - 1 for a, b in zip(counting, silent, strict=True)]
    table.rows.append(
        (
            f"{REQUESTS_A_S:,} requests/s, {WATCHERS:,} watchers",
            f"{median(counting):.0f} µs a request",
            f"while it counts nothing, {median(silent):.0f} µs",
            f"{mean(shares):.2%} ± {stdev(shares) / LOADS**0.5:.2%}",
        )
    )
    scrape_ms, wall_ms, size = await _scrape()
    table.rows.append(
        (
            f"a scrape: {WORKERS:,} workers with {GPUS} GPUs, {MODELS} models",
            f"{scrape_ms:.0f} ms of CPU, {wall_ms:.0f} ms in all, {size / 2**20:.1f} MiB",
            f"{SCRAPE_EVERY_S} s until the next",
            _share(scrape_ms, SCRAPE_EVERY_S * 1000),
        )
    )
    busy = REQUESTS_A_S * (submission_us + chat_us) / 2 / 1e6
    table.notes = [
        f"At {REQUESTS_A_S:,} requests a second, half of them chats, counting takes {busy:.2%} of a core.",
        (
            f"Costs are the least of {ROUNDS} rounds of {CALLS:,} calls in a loop, with the metrics less without. The gateway's own"
            " costs are about the least that were ever measured: shares are upper bounds."
        ),
        (
            f"{REQUESTS_A_S:,} requests/s: half submissions, half chats, with {RATE:g} events/s to all watchers;"
            f" one gateway, which counts for {LOADS} times {LOAD_S} s and does not as often, in turns: the mean of the pairs and its"
            f" standard error. The pairs lie between {min(shares):+.1%} and {max(shares):+.1%}."
        ),
        "The scrape is of a real gateway on a real Redis, as the median of 5; its CPU is the gateway's.",
    ]
    return table


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}"


def _least_us(call: Callable[[], Any], calls: int = CALLS) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, time.process_time() - began)
    return best / calls * 1e6


def _submission_us() -> float:
    figures = RequestFigures(time.time)

    def request() -> None:
        began = time.perf_counter()
        figures.answered("POST", "/v1/videos", 200, time.perf_counter() - began)

    return _least_us(request)


def _chat_us() -> float:
    figures = ModelFigures()

    def request() -> None:
        figures.first.add(0.2)
        figures.finished("200", 1.0, 10, 20)
        figures.pace.add(0.02)

    return _least_us(request)


def _event_us() -> float:
    figures = RequestFigures(time.time)
    step = 0

    def event() -> None:
        nonlocal step
        step += 1
        progressed = Progressed(time.time(), 1, Stage.DENOISING, step % 40, 40)
        figures.observe(
            Recorded("1-0", "1-0", TaskId(f"video_{step // 40}"), TenantId("t"), progressed), None
        )

    return _least_us(event)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A gateway with watchers, and what to ask of it."""

    service: Service
    rank: Helper
    submission: Target
    chat: Target
    sockets: list[Socket]


async def _loaded() -> tuple[list[float], list[float]]:
    """CPU µs for each request and its share of the events while a gateway counts, and while it does not, in turns. It is the
    same process: two of the same gateway differ by more than what is looked for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # inherited by the servers
    here = Path(__file__).parent
    switched = {"PYTHONPATH": f"{here / 'no_metrics'}:{here.parent / 'src'}"}
    engine_port = free_port()
    engine = Command([sys.executable, "-m", "benchmarks.relay_parts", "--port", str(engine_port)])
    used: tuple[list[float], list[float]] = ([], [])
    async with started("engine", engine, engine_port), _watched(switched, engine_port) as gateway:
        await _load(gateway, 0)  # for caches
        counts = True
        for number in range(2 * LOADS):
            if number % 2:  # on, off, off, on, on, off …
                gateway.service.parts["gateway"].send_signal(signal.SIGUSR2)
                counts = not counts
            used[not counts].append(await _load(gateway, number + 1))
            if number % 10 == 9:
                say(f"load {number + 1} of {2 * LOADS}: {[round(took[-1]) for took in used]} µs a request")
    return used


async def _load(gateway: "_Loaded", number: int) -> float:
    process = gateway.service.parts["gateway"]
    before = _used_s(process.pid)
    async with asyncio.TaskGroup() as group:
        runs = [
            group.create_task(target.run(20, LOAD_S, {}, REQUESTS_A_S / 2))
            for target in (gateway.submission, gateway.chat)
        ]
        steps = int(LOAD_S * RATE)
        group.create_task(gateway.rank.ask("report", 1 + number * steps, steps))
    answered = sum(len(run.result().latencies_s) for run in runs)
    return (_used_s(process.pid) - before) / answered * 1e6


def _used_s(pid: int) -> float:
    """CPU of all threads, in nanoseconds and not in ticks."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@asynccontextmanager
async def _watched(environ: dict[str, str], engine_port: int) -> AsyncGenerator[_Loaded]:
    async with front(
        ("gateway",), environ, lease_s=3600.0, max_connections_per_address=2 * WATCHERS, **LIMITS
    ) as service:
        await lead_to(service, engine_port)
        task = await submit_one(service)
        rank = Helper(be_rank, service.config)
        await rank.hear()
        assert await rank.ask("claim") == task
        sockets: list[Socket] = []
        while len(sockets) < WATCHERS:
            opening = [Socket.open(f"/v1/videos/{task}/ws", service.port, service.api_key) for _ in range(50)]
            sockets += await asyncio.gather(*opening)
        address = ("127.0.0.1", service.port)
        create = http_request("POST", "/v1/videos", service.port, service.api_key, submit.BODY)
        chat = http_request("POST", PATH, service.port, service.api_key, asked("whole"))
        try:
            yield _Loaded(
                service,
                rank,
                Target(address, create, http_length),
                Target(address, chat, http_length),
                sockets,
            )
        finally:
            for socket in sockets:
                socket.close()
            await rank.end()


async def _scrape() -> tuple[float, float, int]:
    async with front() as service:
        await _fill(service)
        cpu: list[float] = []
        wall: list[float] = []
        text = ""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.port}", timeout=60) as http:
            await http.get("/metrics")
            for number in range(5):
                before, began = cpu_s(service.parts["gateway"]), time.perf_counter()
                answer = await http.get("/metrics")
                wall.append((time.perf_counter() - began) * 1000)
                cpu.append((cpu_s(service.parts["gateway"]) - before) * 1000)
                text = answer.text
                say(f"scrape {number + 1}: {wall[-1]:.0f} ms")
                await asyncio.sleep(1)
        assert text.count("turnout_gpu_power_watts{") == WORKERS * GPUS
        return median(cpu), median(wall), len(text)


async def _fill(service: Service) -> None:
    address = redis_url(embedded_redis_dir(service.config), service.redis_password)
    link = RedisConnection(address, "turnout")
    try:
        models, workers = ModelStore(link), WorkerStore(link)
        for number in range(MODELS):
            await models.put(Model(f"model-{number:04d}", EngineKind.LLAMACPP, "w.gguf"))
        gpus = tuple(Gpu(n, 80 << 30, 20 << 30, "NVIDIA H200", 0.9, 650.0, 70.0, 0, 0) for n in range(GPUS))
        machine = Machine(gpus, 1 << 40, 1 << 39, 64, disk_bytes=1 << 42, free_disk_bytes=1 << 41)
        for number in range(WORKERS):
            worker = WorkerId(f"w-{number:012x}")
            await workers.enrol(
                Enrolment(worker, f"gpu-{number}", f"http://10.0.{number // 250}.{number % 250}:1", "d" * 64)
            )
            reports = tuple(
                ReplicaReport(
                    ReplicaId(f"m-1-{number * GPUS + gpu}"),
                    Phase.READY,
                    "127.0.0.1:1",
                    1,
                    "",
                    f"model-{(number + gpu) % MODELS:04d}",
                    (gpu,),
                )
                for gpu in range(GPUS)
            )
            await workers.heard(worker, StoredHeartbeat(machine, reports, 1))
    finally:
        await link.close()
