"""How long a gang takes to start, to take up a task, to drop a cancelled one, and what a kill costs.

The whole service runs as a user runs it. Times are those that the processes themselves wrote into events and logs.
The limit is one process without a service that imports, loads and steps (`direct.py`).
"""

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.direct import SMALL, Times
from benchmarks.figures import Table, say
from benchmarks.machine import Pressure
from benchmarks.service import MODEL, Service, whole
from benchmarks.story import Story, following, of_kind, stepped
from turnout.run.open_stores import open_stores
from turnout.tasks.task_rules import Cancelled, Claimed, Finished, Interrupted, Progressed, TaskId

LONG: dict[str, Any] = {"size": "128x128", "frames": 17, "steps": 100}
WARM = 6
CANCELS = 6
KILLS = 4
_CHANCE = random.Random(2026)


@dataclass(frozen=True, slots=True)
class Kill:
    """One rank killed: how many steps were done again, and how long each part of the recovery took."""

    lost_steps: int
    noticed_s: float
    formed_s: float
    first_step_s: float


async def measure() -> Table:
    """Gang start, first step, cancel latency and work lost at a kill."""
    table = Table(
        "gang: 2 ranks on this machine",
        ("what", "n", "median", "worst", "unit", "limit", "median of limit", "limit is"),
    )
    pressure = Pressure()
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as directory:
        models = Path(directory) / "state" / "models"
        say("one process without a service: once to make the model, once to measure")
        await _direct(models)
        direct = await _direct(models)
        async with _rendering(Path(directory)) as bench:
            config = bench.service.config
            _cold(table, await bench.cold(), direct)
            _warm(table, [await bench.warm() for _ in range(WARM)], direct)
            cancels = [await bench.cancel(n) for n in range(CANCELS)]
            row(table, "cancel: accepted → dropped by all ranks", [ms for ms, _ in cancels], "ms", None, "")
            row(table, "cancel: the same in steps", [n for _, n in cancels], "steps", 1.0, "one step")
            kills = [await bench.kill(n) for n in range(KILLS)]
            _kills(table, kills, direct, config.gangs.checkpoint_steps)
    table.notes = [
        f"direct: import {direct.import_s:.2f} s, load {direct.load_s:.2f} s, first begin and step {direct.begin_s:.2f} s.",
        "kill → re-formed has the supervisor's pause in it, which doubles with each kill in a row: 0.5 s, 1 s, 2 s, …",
        pressure.note(),
    ]
    return table


def row(
    table: Table, what: str, values: Sequence[float], unit: str, limit: float | None, limit_is: str
) -> None:
    ratio = None if limit is None else median(values) / limit
    table.rows.append(
        (what, len(values), float(median(values)), float(max(values)), unit, limit, ratio, limit_is)
    )


def _cold(table: Table, times: tuple[float, float, float], direct: Times) -> None:
    limit = direct.import_s + direct.load_s + direct.begin_s
    row(
        table, "cold start: submit → first step", [times[0]], "s", limit, "direct: process start → first step"
    )
    row(table, "cold start: gang started → first step", [times[1]], "s", limit, "the same")
    load_s = direct.load_s + direct.begin_s
    row(table, "cold start: ranks forked → first step", [times[2]], "s", load_s, "direct: load and one step")


def _warm(table: Table, times: Sequence[tuple[float, float]], direct: Times) -> None:
    limit = direct.warm_s * 1e3
    row(
        table,
        "warm: submit → first step",
        [t * 1e3 for t, _ in times],
        "ms",
        limit,
        "direct: begin and one step",
    )
    row(table, "warm: claim → first step", [t * 1e3 for _, t in times], "ms", limit, "the same")


def _kills(table: Table, kills: Sequence[Kill], direct: Times, checkpoint_steps: int) -> None:
    reload_s = direct.load_s + direct.begin_s
    row(table, "kill → task put back", [k.noticed_s for k in kills], "s", None, "")
    row(table, "kill → re-formed", [k.formed_s for k in kills], "s", None, "")
    row(
        table,
        "re-formed → first step",
        [k.first_step_s for k in kills],
        "s",
        reload_s,
        "direct: load and one step",
    )
    lost = [float(k.lost_steps) for k in kills]
    row(table, "work lost at a kill", lost, "steps", float(checkpoint_steps), "steps between checkpoints")


class Rendering:
    """A running service and what can be done to it."""

    def __init__(self, service: Service, client: httpx.AsyncClient, story: Story) -> None:
        self.service = service
        self._client = client
        self._story = story

    async def cold(self) -> tuple[float, float, float]:
        """Seconds to the first step: since the submission, since the worker decided, since there were ranks."""
        say("cold start")
        began = time.time()
        task = await self._submit(SMALL)
        first = await self._first_step(task)
        await self._ended(task)
        decided = _logged_at(self._logged("worker", "engine started")[-1])
        formed = _logged_at(self._logged(self._gang(), "gang formed")[-1])
        return first.at - began, first.at - decided, first.at - formed

    async def warm(self) -> tuple[float, float]:
        """Seconds to the first step since the submission, and since the claim; the gang is resident and idle."""
        await asyncio.sleep(_CHANCE.uniform(0.3, 0.8))  # so that submissions meet the gang's poll anywhere
        began = time.time()
        task = await self._submit(SMALL)
        claimed = await self._story.until(task, of_kind(Claimed), "the claim")
        first = await self._first_step(task)
        await self._ended(task)
        say(f"warm first step after {first.at - began:.3f} s")
        return first.at - began, first.at - claimed.at

    async def cancel(self, number: int) -> tuple[float, float]:
        """How long the gang went on after a cancel was accepted: in ms, and in steps of its own pace."""
        task = await self._submit(LONG)
        await self._story.until(task, stepped(past=6 + _CHANCE.randrange(6)), "some steps")
        await asyncio.sleep(_CHANCE.uniform(0, 0.1))
        await self._cancel(task)
        cancelled = await self._story.until(task, of_kind(Cancelled), "the cancel")
        leader = f"{self._gang()}.0"
        dropped = await self._log_line(leader, "attempt dropped", task)
        assert self._story.of(task)[-1] == cancelled, "nothing is told of a task after its end"
        went_on_s = max(0.0, _logged_at(dropped) - cancelled.at)
        say(f"cancel {number + 1} of {CANCELS}: dropped after {went_on_s * 1e3:.0f} ms")
        return went_on_s * 1e3, went_on_s / _step_s(self._story.steps(task))

    async def kill(self, number: int) -> Kill:
        """SIGKILLs one rank mid-way; the leader and the others in turns."""
        task = await self._submit(LONG)
        await self._story.until(task, stepped(past=4 + _CHANCE.randrange(16)), "some steps")
        await asyncio.sleep(_CHANCE.uniform(0, 0.3))
        pids: list[int] = self._logged(self._gang(), "gang formed")[-1]["pids"]
        killed_at = time.time()
        os.kill(pids[number % len(pids)], signal.SIGKILL)
        put_back = await self._story.until(task, of_kind(Interrupted), "the task to be put back")
        stood = await self._story.until(
            task, stepped(attempt=2, past=-1), "the new attempt to stand where it resumes"
        )
        again = await self._story.until(task, stepped(2, past=stood.step), "a step of it")
        reached = max(step.step for step in self._story.steps(task))
        formed_at = _logged_at(self._logged(self._gang(), "gang formed")[-1])
        await self._cancel(task)
        say(f"kill {number + 1} of {KILLS}: at step {reached}, resumed at {stood.step}")
        return Kill(
            reached - stood.step, put_back.at - killed_at, formed_at - killed_at, again.at - formed_at
        )

    async def _submit(self, wish: dict[str, Any]) -> TaskId:
        answer = await self._client.post("/v1/videos", json={"model": MODEL, "prompt": "a red ball", **wish})
        answer.raise_for_status()
        return TaskId(answer.json()["id"])

    async def _cancel(self, task: TaskId) -> None:
        (await self._client.post(f"/v1/videos/{task}/cancel")).raise_for_status()

    async def _first_step(self, task: TaskId) -> Progressed:
        return await self._story.until(task, stepped(), "the first step")

    async def _ended(self, task: TaskId) -> None:
        await self._story.until(task, of_kind(Finished), "the end")

    def _gang(self) -> str:
        return str(self._logged("worker", "engine started")[-1]["replica"])

    def _logged(self, name: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.service.log(name) if line["event"] == event]

    async def _log_line(self, name: str, event: str, task: TaskId) -> dict[str, Any]:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for line in self._logged(name, event):
                if line.get("task") == task:
                    return line
            await asyncio.sleep(0.05)
        raise RuntimeError(f"{name} did not log {event!r} for {task}")


@asynccontextmanager
async def _rendering(directory: Path) -> AsyncGenerator[Rendering]:
    async with (
        whole(directory, max_attempts=10) as service,
        open_stores(service.config) as stores,
        httpx.AsyncClient(
            base_url=service.url, headers=service.headers, timeout=20, trust_env=False
        ) as client,
        following(stores.events) as story,
    ):
        yield Rendering(service, client, story)


async def _direct(models: Path) -> Times:
    argv = [sys.executable, "-m", "benchmarks.direct", str(models), str(time.time())]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    return Times(**json.loads(out))


def _step_s(steps: Sequence[Progressed]) -> float:
    """The attempt's usual time from one step to the next."""
    return median([later.at - earlier.at for earlier, later in pairwise(steps)])


def _logged_at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
