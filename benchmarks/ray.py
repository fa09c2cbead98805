"""What Ray costs: the same gang and the same tasks as child processes of a worker, and as actors on a Ray cluster.

Both services run as a user runs them, in turns, on this machine, so that what else goes on there hits both. Times are
those that the processes themselves wrote into events.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure
from benchmarks.service import MODEL, whole
from benchmarks.story import Story, following, of_kind, stepped
from turnout.run.open_stores import open_stores
from turnout.tasks.task_rules import Claimed, Finished, TaskId

WISH: dict[str, Any] = {"size": "128x128", "frames": 17, "steps": 20}
ROUNDS = 3
WARM = 3
_UP_S = 300.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: until the service can start gangs, until a cold gang's first step, and of each warm task and step."""

    up_s: Sequence[float]
    cold_s: Sequence[float]
    loaded_s: Sequence[float]
    first_s: Sequence[float]
    task_s: Sequence[float]
    step_s: Sequence[float]


async def measure() -> Table:
    """A gang on Ray beside the same gang as child processes."""
    table = Table(
        "ray: 2 ranks on this machine, as actors and as child processes",
        ("what", "n", "child processes", "ray", "unit", "ray ×"),
    )
    pressure = Pressure()
    rounds = [(await _times("child processes", ()), await _times("ray", ("--ray",))) for _ in range(ROUNDS)]
    plain, on_ray = (_together(times) for times in zip(*rounds, strict=True))
    for what, unit, scale, pick in (
        ("service start → gangs can start", "s", 1.0, lambda t: t.up_s),
        ("cold start: submit → first step", "s", 1.0, lambda t: t.cold_s),
        ("cold start: claim → first step", "s", 1.0, lambda t: t.loaded_s),
        ("warm: submit → first step", "ms", 1e3, lambda t: t.first_s),
        ("warm: submit → video", "ms", 1e3, lambda t: t.task_s),
        ("a step", "ms", 1e3, lambda t: t.step_s),
    ):
        ours, theirs = median(pick(plain)) * scale, median(pick(on_ray)) * scale
        table.rows.append((what, len(pick(plain)), ours, theirs, unit, theirs / ours))
    table.notes = [pressure.note()]
    return table


def _together(rounds: Sequence[Times]) -> Times:
    return Times(*([x for one in rounds for x in getattr(one, f.name)] for f in fields(Times)))


async def _times(name: str, arguments: Sequence[str]) -> Times:
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as directory:
        async with (
            whole(Path(directory), *arguments) as service,
            open_stores(service.config) as stores,
            httpx.AsyncClient(
                base_url=service.url, headers=service.headers, timeout=20, trust_env=False
            ) as client,
            following(stores.events) as story,
        ):
            await _manager_works(client)
            up_s = time.time() - began
            say(f"{name}: up after {up_s:.1f} s")
            task, submitted = await _submit(client)
            first = await story.until(task, stepped(), "the first step")
            claimed = await story.until(task, of_kind(Claimed), "the claim")
            await story.until(task, of_kind(Finished), "the end")
            say(f"{name}: cold first step after {first.at - submitted:.1f} s")
            warm = [await _warm(client, story) for _ in range(WARM)]
            return Times(
                [up_s],
                [first.at - submitted],
                [first.at - claimed.at],
                [w[0] for w in warm],
                [w[1] for w in warm],
                [step for w in warm for step in w[2]],
            )


async def _warm(client: httpx.AsyncClient, story: Story) -> tuple[float, float, list[float]]:
    task, submitted = await _submit(client)
    first = await story.until(task, stepped(), "the first step")
    ended = await story.until(task, of_kind(Finished), "the end")
    steps = [later.at - earlier.at for earlier, later in pairwise(story.steps(task))]
    return first.at - submitted, ended.at - submitted, steps


async def _submit(client: httpx.AsyncClient) -> tuple[TaskId, float]:
    submitted = time.time()
    answer = await client.post("/v1/videos", json={"model": MODEL, "prompt": "a red ball", "seed": 7, **WISH})
    answer.raise_for_status()
    return TaskId(answer.json()["id"]), submitted


async def _manager_works(client: httpx.AsyncClient) -> None:
    """Whoever starts gangs is there when the manager is: a worker, or what was deployed on Ray."""
    async with asyncio.timeout(_UP_S):
        while (await client.get("/ready")).json()["parts"]["manager"] != "ok":
            await asyncio.sleep(0.1)
