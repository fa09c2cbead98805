"""How long a model that was gone takes from a submission to its first step: with a fork server that has the imports of gangs, and
without.

    python -m benchmarks.warm_start [--device cuda] [--weights FOLDER --family wan2.2-t2v-a14b] [--rounds 3]

The whole service runs as a user runs it; before each wake the gang has left. Needs no network. Weights come from the page cache
after the first round, if they fit.
"""

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure
from benchmarks.service import Service, whole
from benchmarks.story import Story, following, of_kind, stepped
from turnout.run.open_stores import open_stores
from turnout.tasks.task_rules import Claimed, Finished, Progressed, Stage, TaskId

_MODEL = "woken"
_IDLE_S = 2.0
_AIMS = {"cpu": {True: 1.5, False: 3.5}, "cuda": {True: 8.0, False: None}}


@dataclass(frozen=True)
class Setup:
    weights: str = "builtin:wan-tiny-t2v"
    family: str = "wan-tiny-t2v"
    device: str = "cpu"
    rounds: int = 3

    @property
    def rest_s(self) -> float:
        return 2.0 if self.device == "cpu" else 15.0

    @property
    def wish(self) -> dict[str, Any]:
        size = {"size": "64x64", "frames": 9} if "tiny" in self.family else {"size": "832x480", "frames": 81}
        return {"model": _MODEL, "prompt": "a red square moving to the right", "seed": 7, "steps": 2, **size}


@dataclass(frozen=True, slots=True)
class Wake:
    """Seconds since the submission."""

    claimed_s: float
    loaded_s: float
    first_step_s: float


async def measure() -> Table:
    """Submission to the first step of a model that was gone, with a fork server for gangs and without."""
    return await _measure(Setup())


async def _measure(setup: Setup) -> Table:
    table = Table(
        f"warm_start: {setup.family} on {setup.device}, seconds since the submission",
        ("imports", "n", "claimed", "loaded", "first step, median", "worst", "aim"),
    )
    pressure = Pressure()
    for forks in (True, False):
        wakes = await _wakes(setup, forks)
        table.rows.append(
            (
                "done by the worker's fork server" if forks else "done by each gang",
                len(wakes),
                median(wake.claimed_s for wake in wakes),
                median(wake.loaded_s for wake in wakes),
                median(wake.first_step_s for wake in wakes),
                max(wake.first_step_s for wake in wakes),
                _AIMS.get(setup.device, {}).get(forks),
            )
        )
    table.notes = ["The first wake of each service is not counted: it fills the page cache.", pressure.note()]
    return table


async def _wakes(setup: Setup, forks: bool) -> list[Wake]:
    model = {
        "engine": "video",
        "weights": setup.weights,
        "family": setup.family,
        "device": setup.device,
        "idle_s": _IDLE_S,
    }
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as directory:
        async with (
            whole(
                Path(directory), models={_MODEL: model}, gang_fork_server=forks, min_resident_s=1.0
            ) as service,
            open_stores(service.config) as stores,
            httpx.AsyncClient(
                base_url=service.url, headers=service.headers, timeout=30, trust_env=False
            ) as client,
            following(stores.events) as story,
        ):
            found = [await _wake(setup, service, client, story) for _ in range(setup.rounds + 1)]
    return found[1:]


async def _wake(setup: Setup, service: Service, client: httpx.AsyncClient, story: Story) -> Wake:
    while any(worker["replicas"] for worker in (await client.get("/workers")).json()["data"]):
        await asyncio.sleep(0.3)
    await asyncio.sleep(setup.rest_s)  # the fork server has its imports
    began = time.time()
    task = TaskId((await client.post("/v1/videos", json=setup.wish)).raise_for_status().json()["id"])
    claimed = await story.until(task, of_kind(Claimed), "the claim")
    loaded = await story.until(task, _past_loading, "the model to be loaded")
    first = await story.until(task, stepped(), "the first step")
    await story.until(task, of_kind(Finished), "the end")
    wake = Wake(claimed.at - began, loaded.at - began, first.at - began)
    say(
        f"first step after {wake.first_step_s:.2f} s (claimed {wake.claimed_s:.2f}, loaded {wake.loaded_s:.2f})"
    )
    return wake


def _past_loading(event: object) -> Progressed | None:
    return event if isinstance(event, Progressed) and event.stage is not Stage.LOADING else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", default=Setup.weights)
    parser.add_argument("--family", default=Setup.family)
    parser.add_argument("--device", default=Setup.device)
    parser.add_argument("--rounds", type=int, default=Setup.rounds)
    said = parser.parse_args()
    print(asyncio.run(_measure(Setup(said.weights, said.family, said.device, said.rounds))).text())


if __name__ == "__main__":
    main()
