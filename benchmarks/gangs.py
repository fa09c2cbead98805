"""A thousand gangs at one gateway: their protocol without an engine. Each holds a claim open, reports its steps, and finishes.

How fast tasks are claimed, what a report costs the gateway beside a bare request, and whether a lease was lost.
"""

import asyncio
import json
import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.figures import Table, percentile, say
from benchmarks.machine import Pressure, cpu_s
from benchmarks.service import MODEL, Service, front
from turnout.run.config import DEFAULT_MODELS
from turnout.run.open_stores import open_stores
from turnout.stores import Stores
from turnout.tasks.gang_tokens import GangRight, GangTokens
from turnout.tasks.task_rules import GangId, Limits, Task, TaskId, TenantId
from turnout.tasks.video_rules import VideoSpec
from turnout.tenants.key_rules import Role, mint

GANGS = int(os.environ.get("BENCH_GANGS", "1000"))
SECONDS = float(os.environ.get("BENCH_GANGS_S", "600"))
STEP_S = 5.0  # a guided step of A14B at 480p on an H200
STEPS = 8
_ASKED = 300  # bare requests to compare with
_CLAIM_S = 20.0
_TENANTS = 8


@dataclass(slots=True)
class Seen:
    submitted_at: dict[str, float] = field(default_factory=dict[str, float])
    claim_s: list[float] = field(default_factory=list[float])
    report_s: list[float] = field(default_factory=list[float])
    finished: int = 0
    stale: int = 0
    errors: int = 0


class Line:
    """One connection that is kept. The client must cost less than what it measures."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._at = parts.hostname or "", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, path: str, token: str, body: Any) -> dict[str, Any]:
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/gangs{path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {token}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        return await self._ask(head.encode() + content)

    async def health(self) -> None:
        await self._ask(b"GET /health HTTP/1.1\r\nhost: gateway\r\n\r\n")

    async def _ask(self, request: bytes) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._at)
        reader, writer = self._streams
        try:
            writer.write(request)
            async with asyncio.timeout(_CLAIM_S + 30):
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
                body = await reader.readexactly(size)
        except BaseException:
            writer.close()
            self._streams = None
            raise
        if not head.startswith(b"HTTP/1.1 2"):
            raise OSError(f"{head[9:12].decode()}: {body[:200].decode()}")
        return json.loads(body) if body else {}


async def measure() -> Table:
    """1,000 simulated gangs: claims a second, CPU a report, p99 of a claim, leases lost."""
    table = Table(
        f"gangs: {GANGS} at one gateway for {SECONDS:.0f} s, a report each {STEP_S:g} s",
        ("what", "n", "a second", "p50 ms", "p99 ms", "gateway CPU µs", "of GET /health"),
    )
    pressure = Pressure()
    models = {MODEL: {**DEFAULT_MODELS[MODEL], "runner": "external"}}
    async with front(models=models) as service, open_stores(service.config) as stores:
        tokens = await _tokens(stores)
        bare_us = await _bare_us(service)
        seen = Seen()
        began = time.monotonic()
        until = began + SECONDS
        gateway, redis = service.parts["gateway"], service.parts["redis"]
        before = cpu_s(gateway), cpu_s(redis)
        say(f"{GANGS} gangs for {SECONDS:.0f} s")
        async with asyncio.TaskGroup() as group:
            for number in range(GANGS):
                group.create_task(_gang(service.url, tokens[number], seen, until))
            group.create_task(_submit(stores, seen, until))
        taken_s = time.monotonic() - began  # the last tasks end after `until`
        used_s, redis_s = cpu_s(gateway) - before[0], cpu_s(redis) - before[1]
        lost = await _failures(stores, seen)
    calls = len(seen.claim_s) + len(seen.report_s)
    each_us = 1e6 * used_s / max(1, calls)
    for name, taken in (("claim: submitted → answered", seen.claim_s), ("report", seen.report_s)):
        table.rows.append(
            (
                name,
                len(taken),
                len(taken) / taken_s,
                1000 * percentile(taken, 0.5),
                1000 * percentile(taken, 0.99),
                each_us,
                each_us / bare_us,
            )
        )
    table.notes = [
        f"{seen.finished} tasks finished; attempts that lost their lease {lost}, stale {seen.stale}, errors {seen.errors}.",
        f"Gateway {100 * used_s / taken_s:.0f} % of a core, Redis {100 * redis_s / taken_s:.0f} %; GET /health {bare_us:.0f} µs.",
        "The gateway's CPU is that of all calls, over claims and reports.",
        pressure.note(),
    ]
    return table


async def _tokens(stores: Stores) -> list[str]:
    key, _ = mint(
        secrets.token_hex(6), secrets.token_hex(24), TenantId("default"), Role.WORKER, "gangs", time.time()
    )
    await stores.tenants.keys.add(key)
    signer = GangTokens(await stores.share_links.url_secret())
    return [signer.token(GangRight(key.id, GangId(f"g{n}"), MODEL)) for n in range(GANGS)]


async def _bare_us(service: Service) -> float:
    line = Line(service.url)
    await line.health()
    gateway = service.parts["gateway"]
    before = cpu_s(gateway)
    for _ in range(10 * _ASKED):
        await line.health()
    return 1e6 * (cpu_s(gateway) - before) / (10 * _ASKED)


async def _gang(url: str, token: str, seen: Seen, until: float) -> None:
    line = Line(url)
    while time.monotonic() < until:
        try:
            task = (await line.call("/claim", token, {"wait_s": _CLAIM_S}))["task"]
            if task is not None:
                seen.claim_s.append(time.monotonic() - seen.submitted_at[task["id"]])
                await _render(line, task, seen)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            seen.errors += 1
            await asyncio.sleep(1)


async def _render(line: Line, task: dict[str, Any], seen: Seen) -> None:
    for step in range(1, STEPS + 1):
        await asyncio.sleep(STEP_S / 2)  # between two steps the lease is renewed, as a gang does
        for event in ((), ({"kind": "progress", "stage": "denoising", "step": step, "of": STEPS},)):
            began = time.monotonic()
            answer = await line.call("/report", task["token"], {"events": event})
            seen.report_s.append(time.monotonic() - began)
            if answer["stale"]:
                seen.stale += 1
                return
            await asyncio.sleep(STEP_S / 4)
    await line.call("/report", task["token"], {"events": [{"kind": "finished", "bytes": 1}]})
    seen.finished += 1


async def _submit(stores: Stores, seen: Seen, until: float) -> None:
    """As many as keep nine gangs of ten at work."""
    pause_s = STEPS * STEP_S / (0.9 * GANGS)
    spec = VideoSpec("x", "", 128, 128, 17, 8, STEPS, guidance=(3.0, 3.0), shift=5.0, seed=1)
    limits, number = Limits(10**6, 10**6, 10**6), 0
    due = time.monotonic()
    while (due := due + pause_s) < until:
        await asyncio.sleep(due - time.monotonic())
        number += 1
        task = Task(
            TaskId(f"video_{number:08d}"), TenantId(f"t{number % _TENANTS}"), MODEL, spec, time.time()
        )
        seen.submitted_at[task.id] = time.monotonic()
        await stores.tasks.submit(task, limits)


async def _failures(stores: Stores, seen: Seen) -> int:
    """Attempts that somebody took away."""
    return sum([(await stores.tasks.get(TaskId(one))).failures for one in seen.submitted_at])
