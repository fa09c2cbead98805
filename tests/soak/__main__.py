"""`./dev soak`: hours of mixed load on one `turnout up` with a fault a minute. Memory, descriptors, files and Redis must stay flat.

Each role is killed in some thirds of the time and left alone in another, where its growth is judged. Progress goes to stderr, the
account to stdout, plots and samples to a folder.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from pathlib import Path

import psutil
from tests.service import Service
from tests.soak.flatness_rules import Verdict, verdict
from tests.soak.load import Load
from tests.soak.samples import PASSING, ROLES, Sample, measured, measured_redis

from turnout.errors import Unavailable
from turnout.plan.svg_plots import legend, lines

SETTINGS = {
    "retention_s": 600,  # tasks come and go many times
    "limit_waiting": 1000,
    "limit_running": 100,
    "limit_submits_per_minute": 10_000,
    "checkpoint_steps": 3,
}
MODELS = {
    **{
        name: {"weights": f"builtin:{name}", "family": name, "idle_s": 45}
        for name in ("wan-tiny-t2v", "wan-tiny-ti2v")
    },
    "smollm2": {"engine": "llamacpp", "weights": "builtin:smollm2", "idle_s": 45},
}
FAULTS = (  # in each third of the time
    ("rank", "gang", "engine", "worker", "gateway", "manager", "redis"),
    ("rank", "gang", "engine", "worker"),
    ("rank", "gang", "engine", "gateway", "manager", "redis"),
)
SPARED = {"gateway": 1, "manager": 1, "redis": 1, "worker": 2}  # the third in which it is left alone
_SAMPLE_S = 10.0
_QUIET_EVERY_S, _QUIET_S = 600.0, 90.0
_SETTLE = 0.25  # of the time that counts, until it begins


class Soak:
    def __init__(self, service: Service, seconds: float, fault_s: float, seed: int, log: Path) -> None:
        self._service = service
        self._log = log  # of samples, for who looks before the end
        self._seconds = seconds
        self._fault_s = fault_s
        self._chance = random.Random(seed)
        self._began = time.monotonic()
        self.load = Load(service, seed)
        self.samples: list[Sample] = []
        self.faults: Counter[str] = Counter()

    @property
    def _at_s(self) -> float:
        return time.monotonic() - self._began

    async def run(self) -> None:
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(one()) for one in (self._sample, self._fault, self._rest)]
            await self.load.run(self._seconds)
            for one in beside:
                one.cancel()

    async def _sample(self) -> None:
        while True:
            figures = await asyncio.to_thread(measured, self._service)
            with contextlib.suppress(Unavailable, TimeoutError):  # it was killed a moment ago
                async with asyncio.timeout(5):
                    figures |= await measured_redis(self._service)
            self.samples.append(Sample(self._at_s, figures))
            with self._log.open("a") as log:
                log.write(json.dumps(asdict(self.samples[-1])) + "\n")
            await asyncio.sleep(_SAMPLE_S)

    async def _fault(self) -> None:
        while True:
            await asyncio.sleep(self._fault_s)
            third = min(2, int(3 * self._at_s / self._seconds))
            kind = self._chance.choice(FAULTS[third])
            found = self._service.engines() if kind == "engine" else self._service.parts(kind)
            if found:
                victim = self._chance.choice(found)
                self.faults[kind] += 1
                say(self._at_s, f"killing {kind}; {dict(self.load.done.counts)}")
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()

    async def _rest(self) -> None:
        """Nobody asks for a while, so that every model is released."""
        while True:
            await asyncio.sleep(_QUIET_EVERY_S)
            self.load.quiet.set()
            await asyncio.sleep(_QUIET_S)
            self.load.quiet.clear()

    def verdicts(self) -> Iterator[Verdict]:
        """Of each figure, over the time in which nobody killed its role; but for what grows longer than this lasts."""
        third = self._seconds / 3
        for name in sorted({name for sample in self.samples for name in sample.figures} - {PASSING}):
            spared = next((third for role, third in SPARED.items() if name.startswith(f"{role} ")), None)
            begin, end = (0.0, self._seconds) if spared is None else (spared * third, (spared + 1) * third)
            if found := verdict(name, self.samples, begin + _SETTLE * (end - begin), end):
                yield found


def say(at_s: float, line: str) -> None:
    print(f"{at_s:7.0f} s  {line}", file=sys.stderr, flush=True)


def table(soak: Soak) -> str:
    rows = [
        (v.name, f"{v.before:.1f}", f"{v.after:.1f}", f"{v.per_hour:+.1f}", "flat" if v.flat else "GROWS")
        for v in soak.verdicts()
    ]
    out = [f"{'':24} {'before':>10} {'after':>10} {'an hour':>10}"]
    out += [
        f"{name:24} {before:>10} {after:>10} {hourly:>10}  {word}"
        for name, before, after, hourly, word in rows
    ]
    out.append(f"faults: {dict(soak.faults)}")
    out.append(f"done: {dict(sorted(soak.load.done.counts.items()))}")
    out += [f"ODD ×{count}: {what}" for what, count in soak.load.done.odd.items()]
    return "\n".join(out)


def plots(soak: Soak) -> str:
    """One plot for each kind of figure; a role that was away for a moment keeps its last value."""
    hours = max((s.at_s for s in soak.samples), default=1.0) / 3600
    names = sorted({name for sample in soak.samples for name in sample.figures})
    kinds: dict[str, list[str]] = {}
    for name in names:
        role, _, rest = name.partition(" ")
        kinds.setdefault(rest if role in ROLES else name, []).append(name)
    parts: list[str] = []
    for kind, group in kinds.items():
        series: dict[str, list[float]] = {name: [] for name in group}
        for sample in soak.samples:
            for name, values in series.items():
                values.append(sample.figures.get(name, values[-1] if values else 0.0))
        parts.append(f"<h2>{escape(kind)}</h2>{legend(group)}{lines(series, hours, 'hours', kind)}")
    style = "body{font:15px sans-serif;max-width:50rem;margin:2rem auto}.grid{stroke:#ddd}.legend span{margin-right:1em}.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}text{font-size:11px}"
    return f"<!doctype html><meta charset=utf-8><title>Soak</title><style>{style}</style>{''.join(parts)}"


async def soak_for(options: argparse.Namespace, home: Path) -> Soak:
    service = Service(home / "state", {**SETTINGS, "models": MODELS})
    await service.start()
    log = options.out / "samples.jsonl"
    log.unlink(missing_ok=True)
    soak = Soak(service, options.hours * 3600, options.fault_s, options.seed, log)
    try:
        await soak.run()
    finally:
        if service.running:
            await service.stop()
    return soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--fault-s", type=float, default=60.0, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("soak"), help="where plots and samples go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        soak = asyncio.run(soak_for(options, home))
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(home, ignore_errors=True)
    (options.out / "plots.html").write_text(plots(soak))
    print(table(soak), flush=True)
    print(f"plots are in {options.out / 'plots.html'}")
    return int(bool(soak.load.done.odd) or not all(one.flat for one in soak.verdicts()))


if __name__ == "__main__":
    sys.exit(main())
