"""A run of the real service and its simulation from the same inputs, side by side.

Two chat models that do not fit together take turns, a video model wakes from zero and is released, three tenants ask for
videos, and one gang is killed while it renders. What the plan is given is what a user would measure: the trace, how long each
request took on its replica, how long models load and stop. What it is not given is how long anything waited.
"""

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.service import Service, running_service

from benchmarks.figures import Table, percentile, say
from benchmarks.machine import Pressure
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import EngineKind, Model, Needs, Scaling, VideoPart
from turnout.plan.cloud import Pool
from turnout.plan.modes import PlanMode, Setup
from turnout.plan.outcome import Outcome
from turnout.plan.scenario import (
    DAY_S,
    Faults,
    Kill,
    MachineKind,
    PlannedModel,
    Scenario,
    ServiceSettings,
    Timing,
)
from turnout.plan.simulation import run
from turnout.plan.traffic import PlannedRequest
from turnout.tasks.task_rules import Priority, TenantId

SECONDS = 330.0
RESIDENT_S = 8.0
LOAD_S = 4.0
IDLE_S = 20.0
VIDEO = "wan-tiny-t2v"
CHATS = ("left", "right")
BURSTS = (5.0, 60.0, 115.0, 170.0, 225.0, 280.0)
_INTO_IT_S = 2.0
_MEMORY = psutil.virtual_memory().total


@dataclass
class Seen:
    """One request as it went. `spans` are when replicas worked on it (more than one when one died), `at` when it was made."""

    model: str
    tenant: str
    at: float
    spans: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])


@dataclass
class Record:
    """A real run; times are seconds from its beginning."""

    seen: list[Seen] = field(default_factory=list[Seen])
    rendering: list[Seen] = field(default_factory=list[Seen])
    starts: Counter[str] = field(default_factory=Counter[str])
    loads: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    stop_s: dict[str, float] = field(default_factory=dict[str, float])


async def measure() -> Table:
    """The real service against its simulation."""
    pressure = Pressure()
    with tempfile.TemporaryDirectory() as folder:
        record = await _real(Path(folder))
    # Who is next on the GPU turns on tenths of a second, so one run of either is a sample: a tenth more or less is noise.
    outcomes = [simulated(record, late_s=n / 10) for n in range(-5, 6)]
    table = Table(
        f"plan: a real run of {SECONDS:.0f} s and its simulation",
        ("figure", "real", "simulated", "from", "to", "off by %"),
    )
    for name, real, *planned in compared(record, outcomes):
        off = 100 * (planned[0] - real) / real if real else 0.0
        table.rows.append((name, real, *planned, round(off, 1)))
    loads = ", ".join(
        f"{name} {min(own):.1f} to {max(own):.1f} s" for name, own in sorted(record.loads.items())
    )
    table.notes = [
        f"{len(record.seen)} requests: chat for two models that take turns, videos of three tenants, one gang killed.",
        f"Measured and given to the plan: load times ({loads}), stop times, the time of each request on its replica.",
        f"Simulated {len(outcomes)} times, with load times up to half a second shorter or longer: mean, least and most.",
        pressure.note(),
    ]
    return table


def compared(record: Record, outcomes: Sequence[Outcome]) -> list[tuple[str, float, float, float, float]]:
    rows: list[tuple[str, float, float, float, float]] = []
    for title, names in (("chat", CHATS), ("video", (VIDEO,))):
        waits = [max(0.0, s.spans[0][0] - s.at) for s in record.seen if s.model in names]
        for share in (0.5, 0.95):
            planned = [
                percentile([wait for name in names for wait in outcome.waits_of.get(name, ())], share)
                for outcome in outcomes
            ]
            rows.append((f"{title}: wait p{share * 100:.0f}, s", percentile(waits, share), *_spread(planned)))
    starts = [float(outcome.counts.cold_starts) for outcome in outcomes]
    rows.append(("cold starts", float(sum(record.starts.values())), *_spread(starts)))
    busy = [100 * outcome.busy_share for outcome in outcomes]
    rows.append(("busy share, %", 100 * _busy(record.seen), *_spread(busy)))
    return rows


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, the least, the most."""
    return statistics.mean(values), min(values), max(values)


def _busy(seen: Sequence[Seen]) -> float:
    """The share of the time in which some replica worked."""
    total = until = 0.0
    for began, ended in sorted(span for one in seen for span in one.spans):
        begin, end = max(began, until), min(ended, SECONDS)
        if end > begin:
            total += end - begin
            until = end
    return total / SECONDS


def simulated(record: Record, late_s: float = 0.0) -> Outcome:
    """`late_s` is added to the load times."""
    undisturbed = _simulated(record, late_s, Faults())
    killed = next((one for one in record.seen if len(one.spans) > 1), None)
    if killed is None:
        return undisturbed
    # Killed as far into the rendering as it really was, whenever that began here.
    videos = sorted(one.at for one in record.seen if one.model == VIDEO)
    wait_s = undisturbed.waits_of[VIDEO][videos.index(killed.at)]
    kill = Kill(at_s=killed.at + wait_s + _length(killed.spans[0]), model=VIDEO)
    return _simulated(record, late_s, Faults(kills=(kill,)))


def _length(span: tuple[float, float]) -> float:
    return span[1] - span[0]


def _simulated(record: Record, late_s: float, faults: Faults) -> Outcome:
    requests: list[PlannedRequest] = []
    checkpoint_s = 1e5
    for n, one in enumerate(sorted(record.seen, key=lambda s: s.at)):
        seconds = sum(map(_length, one.spans))
        if len(one.spans) > 1:  # the second attempt went on where the first ended
            checkpoint_s = _length(one.spans[0]) - 1e-6
        requests.append(
            PlannedRequest(one.at, n, one.model, TenantId(one.tenant), seconds, 0, Priority.NORMAL)
        )
    rules = FAMILIES["wan-tiny-t2v"]
    served = {
        VIDEO: Model(
            VIDEO,
            EngineKind.VIDEO,
            "",
            Needs(0, 0, 2**30),
            video=VideoPart(rules),
            scaling=Scaling(idle_s=IDLE_S),
            concurrency=1,
        ),
        **{
            name: Model(
                name,
                EngineKind.COMMAND,
                "",
                Needs(0, 0, int(0.45 * _MEMORY)),
                scaling=Scaling(idle_s=IDLE_S),
                concurrency=4,
            )
            for name in CHATS
        },
    }
    models = {
        name: PlannedModel(
            model,
            Timing(
                load_s=LOAD_S,
                loads=tuple(max(0.1, load_s + late_s) for load_s in record.loads.get(name, ())),
                stop_s=record.stop_s.get(name, 0.5),
                seconds=1.0,
                checkpoint_s=checkpoint_s,
            ),
        )
        for name, model in served.items()
    }
    kind = MachineKind(gpus=0, memory_bytes=int(0.8 * _MEMORY), min=1, max=1)
    scenario = Scenario(
        models,
        (),
        {"here": kind},
        {name: (name,) for name in models},
        days=SECONDS / DAY_S,
        faults=faults,
        service=ServiceSettings(min_resident_s=RESIDENT_S),
    )
    setup = Setup(PlanMode.SHARED, models, (Pool("here", kind, 1, 1),))
    return run(scenario, setup, iter(requests))


async def _real(folder: Path) -> Record:
    engine = [sys.executable, str(Path(__file__).with_name("plan_engine.py")), "{port}", str(LOAD_S)]
    chat = {
        "engine": "command",
        "command": engine,
        "weights": "none",
        "concurrency": 4,
        "memory_bytes": int(0.45 * _MEMORY),
        "idle_s": IDLE_S,
    }
    video = {"engine": "wan", "weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v", "idle_s": IDLE_S}
    settings: dict[str, Any] = {
        "models": {**{name: chat for name in CHATS}, VIDEO: video},
        "min_resident_s": RESIDENT_S,
        "worker_memory_bytes": int(0.8 * _MEMORY),
        "limit_submits_per_minute": 1000,
    }
    record = Record()
    async with running_service(folder, **settings) as service:
        keys = {tenant: await _key(service, tenant) for tenant in ("ann", "bob", "cyd")}
        say("the service is up; the trace begins")
        began = time.time()
        async with asyncio.TaskGroup() as group:
            rng = random.Random(3)
            for model in CHATS:
                at = rng.expovariate(0.4)
                while at < SECONDS - 30:
                    group.create_task(
                        _chat(
                            service, keys["ann"], record, Seen(model, "ann", at), began, rng.uniform(0.3, 1.5)
                        )
                    )
                    at += rng.expovariate(0.4)
            for burst in BURSTS:
                for n, tenant in enumerate(("ann", "bob", "cyd")):
                    group.create_task(
                        _video(service, keys[tenant], record, Seen(VIDEO, tenant, burst + 0.3 * n), began)
                    )
            group.create_task(_kill(service, record, began))
        await asyncio.sleep(max(0.0, began + SECONDS - time.time()))
        _read_log(service.state_dir / "logs" / "worker.log", record)
    return record


async def _key(service: Service, tenant: str) -> str:
    async with httpx.AsyncClient(headers=service.headers) as http:
        return str((await http.post(f"{service.url}/v1/keys", json={"tenant": tenant})).json()["token"])


async def _chat(service: Service, key: str, record: Record, seen: Seen, began: float, seconds: float) -> None:
    await asyncio.sleep(max(0.0, began + seen.at - time.time()))
    while True:
        seen.at = time.time() - began
        body = {
            "model": seen.model,
            "user": str(seconds),
            "messages": [{"role": "user", "content": str(seen.at)}],
        }
        try:
            async with httpx.AsyncClient(timeout=300, headers={"Authorization": f"Bearer {key}"}) as http:
                answer = (await http.post(f"{service.url}/v1/chat/completions", json=body)).json()
            break
        except (
            httpx.TransportError
        ) as err:  # on a machine that is overloaded a client may be too slow to be heard
            say(f"asked again: {err!r}")
    first, last = answer["choices"][0]["message"]["content"].split()
    seen.spans.append((float(first) - began, float(last) - began))
    record.seen.append(seen)


async def _video(service: Service, key: str, record: Record, seen: Seen, began: float) -> None:
    await asyncio.sleep(max(0.0, began + seen.at - time.time()))
    headers = {"Authorization": f"Bearer {key}"}
    # Short ones, but in the last burst, so that the kill meets one that is being rendered.
    work = (20, "128x128", 17) if seen.at > BURSTS[-1] - 1 else (1, "64x64", 5)
    body = {"model": VIDEO, "prompt": f"a red ball {seen.at}"} | dict(
        zip(("steps", "size", "frames"), work, strict=True)
    )
    async with httpx.AsyncClient(timeout=300, headers=headers) as http:
        made = await http.post(f"{service.url}/v1/videos", json=body)
        made.raise_for_status()
        seen.at, since = time.time() - began, None
        async with http.stream("GET", f"{service.url}/v1/videos/{made.json()['id']}/events") as stream:
            async for line in stream.aiter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                now = time.time() - began
                if event["type"] == "video.progress" and event["stage"] != "loading" and since is None:
                    since = now
                    record.rendering.append(seen)
                if event["type"] in ("video.requeued", "video.completed", "video.failed"):
                    seen.spans += [(since, now)] if since is not None else []
                    since = None
                if event["type"] in ("video.completed", "video.failed"):
                    break
    record.seen.append(seen)


async def _kill(service: Service, record: Record, began: float) -> None:
    """Kills the gang while it renders a video of the last burst."""
    await asyncio.sleep(max(0.0, began + BURSTS[-1] - time.time()))
    while time.time() - began < SECONDS:
        if any(seen.at > BURSTS[-1] for seen in record.rendering) and (gangs := service.parts("gang")):
            await asyncio.sleep(_INTO_IT_S)
            gangs[0].kill()
            return
        await asyncio.sleep(0.2)


def _entries(log: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in log.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _read_log(log: Path, record: Record) -> None:
    since: dict[tuple[str, str], float] = {}
    loads: dict[str, list[float]] = {}
    stops: dict[str, list[float]] = {}
    for entry in _entries(log):
        at = _seconds(entry)
        if entry.get("event") == "engine started":
            record.starts[entry["model"]] += 1
            since["load", entry["replica"]] = at
        elif entry.get("event") == "replica changed phase":
            key = entry["replica"]
            if entry["phase"] == "ready" and ("load", key) in since:
                loads.setdefault(entry["model"], []).append(at - since["load", key])
            elif entry["phase"] == "stopping":
                since["stop", key] = at
            elif entry["phase"] == "gone" and ("stop", key) in since:
                stops.setdefault(entry["model"], []).append(at - since["stop", key])
    record.loads = loads
    record.stop_s = {name: statistics.mean(values) for name, values in stops.items()}


def _seconds(entry: dict[str, Any]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(str(entry["timestamp"])).timestamp()
