"""How far the estimates of videos are from what the videos take: over a mixed run of sizes, lengths, steps and options.

    python -m benchmarks.estimates [--device cuda] [--weights FOLDER --family wan2.2-t2v-a14b] [--rounds 3]

Needs no network. The first round makes one video of each kind that the model has never made: their estimates are scaled. In the
rounds after it all are submitted at once, in any order. In the end the model sleeps, and the estimate has its waking in it.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure
from benchmarks.service import Service, whole
from turnout.run.open_stores import open_stores
from turnout.stores import Stores
from turnout.tasks.task_rules import Claimed, Finished, Progressed, Recorded, TaskId

_MODEL = "estimated"
_IDLE_S = 6.0
_TASK_S = 900.0
_CHANCE = random.Random(2026)
_TINY: tuple[dict[str, Any], ...] = (
    {"size": "128x128", "frames": 17, "steps": 12},
    {"size": "128x128", "frames": 17, "steps": 4},
    {"size": "128x128", "frames": 33, "steps": 8},
    {"size": "64x64", "frames": 33, "steps": 12},
    {"size": "256x256", "frames": 9, "steps": 6},
    {"size": "192x192", "frames": 33, "steps": 6},
    {"size": "128x128", "frames": 17, "steps": 12, "guided_share": 0.5},
    {"size": "128x128", "frames": 17, "steps": 12, "guidance": [1.0]},
    {"size": "128x128", "frames": 17, "steps": 20, "step_cache": 0.1},
)
_LARGE: tuple[dict[str, Any], ...] = (
    {"size": "832x480", "frames": 81, "steps": 4},
    {"size": "832x480", "frames": 81, "steps": 4, "guidance": [1.0]},
    {"size": "832x480", "frames": 33, "steps": 6},
    {"size": "1280x720", "frames": 33, "steps": 4},
    {"size": "832x480", "frames": 81, "steps": 6, "guided_share": 0.5},
)


@dataclass(slots=True)
class Errors:
    """Of one kind: estimate / truth - 1, for a first time and for later ones."""

    took_s: list[float] = field(default_factory=list[float])
    scaled: float | None = None
    seen: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class Setup:
    """What renders."""

    weights: str = "builtin:wan-tiny-t2v"
    family: str = "wan-tiny-t2v"
    device: str = "cpu"
    rounds: int = 3

    @property
    def kinds(self) -> tuple[dict[str, Any], ...]:
        return _TINY if "tiny" in self.family else _LARGE

    @property
    def model(self) -> dict[str, Any]:
        return {
            "engine": "video",
            "weights": self.weights,
            "family": self.family,
            "device": self.device,
            "idle_s": _IDLE_S,
        }


async def measure() -> Table:
    """Estimates of videos beside what they take, over a mixed run."""
    return await _measure(Setup())


async def _measure(setup: Setup) -> Table:
    table = Table(
        f"estimates: {setup.family} on {setup.device}, error in % of the truth",
        ("kind", "n", "takes s", "first time", "aim", "seen before, median", "worst", "aim "),
    )
    pressure = Pressure()
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as directory:
        async with _bench(Path(directory), setup) as bench:
            errors = [Errors() for _ in setup.kinds]
            for kind, each in zip(setup.kinds, errors, strict=True):
                each.scaled = await bench.alone(kind, each)
            line: list[float] = []
            for round_ in range(setup.rounds - 1):
                say(f"round {round_ + 2} of {setup.rounds}: all kinds at once")
                line += await bench.together(setup.kinds, errors)
            asleep = [await bench.asleep(setup.kinds[0]) for _ in range(2)]
    for kind, each in zip(setup.kinds, errors, strict=True):
        scaled = None if each.scaled is None else 100 * each.scaled
        table.rows.append(
            (_words(kind), len(each.took_s), median(each.took_s), scaled, "± 40", *_seen(each.seen), "± 15")
        )
    table.rows.append(("submitted in a line → end", len(line), None, None, "", *_seen(line), "± 15"))
    table.rows.append(("asleep: submitted → end", len(asleep), None, None, "", *_seen(asleep), ""))
    table.notes = [
        "The first video of all has no estimate. Errors are (estimate - truth) / truth; the first row's kind was the only one known",
        "when the second one was estimated. Estimates of tasks under way are the first that their gang told.",
        pressure.note(),
    ]
    return table


def _words(kind: dict[str, Any]) -> str:
    options = [f"{name} {value}" for name, value in kind.items() if name not in ("size", "frames", "steps")]
    return ", ".join([f"{kind['size']} x {kind['frames']}, {kind['steps']} steps", *options])


def _seen(errors: list[float]) -> tuple[float | None, float | None]:
    if not errors:
        return None, None
    return 100 * median(errors), 100 * max(errors, key=abs)


@asynccontextmanager
async def _bench(directory: Path, setup: Setup) -> AsyncGenerator["_Bench"]:
    async with (
        whole(directory, models={_MODEL: setup.model}) as service,
        open_stores(service.config) as stores,
        httpx.AsyncClient(
            base_url=service.url, headers=service.headers, timeout=30, trust_env=False
        ) as client,
    ):
        yield _Bench(service, stores, client)


@dataclass(frozen=True, slots=True)
class _Bench:
    service: Service
    stores: Stores
    client: httpx.AsyncClient

    async def alone(self, kind: dict[str, Any], errors: Errors) -> float | None:
        """A first video of the kind; the error of what a form would have said of it."""
        say(f"a first video of {_words(kind)}")
        query = {name: _text(value) for name, value in kind.items()}
        guess = (await self._get(f"/v1/models/{_MODEL}/estimate", query))["render_s"]
        events = await self._ended((await self._submit(kind))["id"])
        errors.took_s.append(_rendering_s(events))
        return None if guess is None else guess / errors.took_s[-1] - 1

    async def together(self, kinds: tuple[dict[str, Any], ...], errors: list[Errors]) -> list[float]:
        """All of them in one line; the errors of what each was told when it was submitted."""
        order = list(range(len(kinds)))
        _CHANCE.shuffle(order)
        await asyncio.sleep(1.5)  # a look at the line is kept for a second
        submitted = [(place, await self._submit(kinds[place])) for place in order]
        found: list[float] = []
        for place, video in submitted:
            events = await self._ended(video["id"])
            errors[place].took_s.append(_rendering_s(events))
            told = next(
                each.event for each in events if isinstance(each.event, Progressed) and each.event.eta_s
            )
            assert told.eta_s is not None
            errors[place].seen.append(told.eta_s / (_end(events) - told.at) - 1)
            found.append(video["eta_s"] / (_end(events) - video["at"]) - 1)
        return found

    async def asleep(self, kind: dict[str, Any]) -> float:
        """The error of a submission that wakes the model."""
        while (await self._get(f"/v1/models/{_MODEL}", {}))["state"] != "stopped":
            await asyncio.sleep(0.5)
        video = await self._submit(kind)
        return video["eta_s"] / (_end(await self._ended(video["id"])) - video["at"]) - 1

    async def _submit(self, kind: dict[str, Any]) -> dict[str, Any]:
        body = {"prompt": "a red square moving to the right", "model": _MODEL, "seed": 7, **kind}
        answer = (await self.client.post("/v1/videos", json=body)).raise_for_status().json()
        history = await self.stores.events.history(TaskId(answer["id"]))
        return {**answer, "at": history[0].event.at}

    async def _get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        return (await self.client.get(path, params=query)).raise_for_status().json()

    async def _ended(self, video: str) -> list[Recorded]:
        async with asyncio.timeout(_TASK_S):
            while True:
                events = await self.stores.events.history(TaskId(video))
                if isinstance(events[-1].event, Finished):
                    return events
                state = (await self._get(f"/v1/videos/{video}", {}))["status"]
                if state in ("failed", "cancelled"):
                    raise RuntimeError(f"{video} has {state}")
                await asyncio.sleep(0.2)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _end(events: list[Recorded]) -> float:
    return events[-1].event.at


def _rendering_s(events: list[Recorded]) -> float:
    """From the claim to the end, without what a model that slept took to be loaded."""
    claimed = max(each.event.at for each in events if isinstance(each.event, Claimed))
    begun = min(
        each.event.at
        for each in events
        if isinstance(each.event, Progressed) and each.event.at >= claimed and each.event.stage != "loading"
    )
    return _end(events) - begun


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", default=Setup.weights)
    parser.add_argument("--family", default=Setup.family)
    parser.add_argument("--device", default=Setup.device)
    parser.add_argument("--rounds", type=int, default=Setup.rounds)
    said = parser.parse_args()
    setup = Setup(said.weights, said.family, said.device, max(2, said.rounds))
    print(asyncio.run(_measure(setup)).text())


if __name__ == "__main__":
    main()
