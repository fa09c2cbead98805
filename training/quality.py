"""Judges the shipped weights: draws the held-out prompts on the CPU, reads the clips, prints the table of the bar.

    python -m training.quality [time] [t2v] [ti2v] [pictures] [--prompts 200] [--pictures 40] [--weights DIR]

Renders with the product's own engine, one process a core, and names each prompt that came out wrong. Exits with 1 when
anything lies below the bar.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from training.captions import prompts
from training.checker import Verdict, judge, read
from training.draw import draw, pack
from training.fit_vae import psnr
from training.pool import table
from training.shipped import WEIGHTS, Studio, as_png

SEED = 77  # not the seed of the prompts that training was watched with
BAR = {"colour": 95.0, "shape": 85.0, "motion": 90.0, "background": 95.0}
FRAME_0_DB = 28.0
CLIP_S = 20.0
TIMING = "time"
PARTS = {"t2v": "wan-tiny-t2v", "ti2v": "wan-tiny-ti2v", "pictures": "wan-tiny-ti2v"}


@dataclass(frozen=True, slots=True)
class Job:
    """One held-out prompt, by its place in the list, for one part of the table."""

    part: str
    place: int
    weights: Path


@dataclass(frozen=True, slots=True)
class Judged:
    job: Job
    verdict: Verdict
    first_db: float | None  # how like frame 0 is to what the VAE shows of the given picture


_studios: dict[str, Studio] = {}


def _render(job: Job) -> Judged:
    torch.set_num_threads(1)
    name = PARTS[job.part]
    if name not in _studios:
        _studios[name] = Studio(name, job.weights)
    studio = _studios[name]
    clip, said = prompts(job.place + 1, SEED)[job.place]
    if job.part != "pictures":
        made = studio.render(said, job.place)
        return Judged(job, judge(clip, read(made, len(clip.things))), None)
    first = as_png(draw(pack([clip]), 1)[0][0, 0])
    made = studio.render(said, job.place, first)
    verdict = judge(clip, read(made, len(clip.things)))
    return Judged(job, verdict, psnr(made[0], studio.shown(first)))


@dataclass(slots=True)
class Tally:
    """What was found so far of one part."""

    found: list[Judged] = field(default_factory=list)

    def scores(self) -> dict[str, float]:
        return table([each.verdict for each in self.found])

    def worst_first_db(self) -> float | None:
        return min((each.first_db for each in self.found if each.first_db is not None), default=None)

    def failed(self) -> bool:
        scores, likeness = self.scores(), self.worst_first_db()
        return any(scores[k] < BAR[k] for k in BAR) or (likeness is not None and likeness < FRAME_0_DB)


def _row(title: str, scores: dict[str, float]) -> str:
    return f"{title:58}" + "".join(f"{scores[k]:>11.1f}%" for k in BAR)


def _title(part: str, tally: Tally) -> str:
    if (likeness := tally.worst_first_db()) is not None:
        return f"{PARTS[part]}, first frame ({len(tally.found)}; frame 0 at least {likeness:.1f} dB)"
    return f"{PARTS[part]}, words ({len(tally.found)} prompts)"


def time_one_clip(weights: Path) -> float:
    """Seconds that a clip of two seconds takes on all cores, loading apart."""
    studio = Studio("wan-tiny-t2v", weights)
    began = time.monotonic()
    studio.render("a red circle moving to the right on a white background", 1)
    return time.monotonic() - began


def judge_all(jobs: Iterable[Job], processes: int) -> dict[str, Tally]:
    jobs, tallies, began = list(jobs), {}, time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, judged in enumerate(pool.imap_unordered(_render, jobs), 1):
            tally = tallies.setdefault(judged.job.part, Tally())
            tally.found.append(judged)
            spent = time.monotonic() - began
            if wrong := [k for k in BAR if not getattr(judged.verdict, k)]:
                said = prompts(judged.job.place + 1, SEED)[-1][1]
                print(f"{judged.job.part}: {', '.join(wrong)} wrong in: {said}", flush=True)
            now = " ".join(f"{k} {v:.1f}" for k, v in tally.scores().items())
            print(f"\r{done}/{len(jobs)} clips, {spent / 60:.1f} min; {judged.job.part}: {now}   ",
                  end="", file=sys.stderr, flush=True)  # fmt: skip
    print(file=sys.stderr)
    return tallies


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", help=f"{TIMING}, {', '.join(PARTS)}: which parts of the table; all unless said"
    )
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--pictures", type=int, default=40, help="how many prompts to try with a first frame")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    parts = args.parts or [TIMING, *PARTS]
    if unknown := set(parts) - {TIMING, *PARTS}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    one_clip_s = time_one_clip(args.weights) if TIMING in parts else 0.0
    tallies = judge_all(
        (
            Job(part, place, args.weights)
            for part in parts
            if part != TIMING
            for place in range(args.pictures if part == "pictures" else args.prompts)
        ),
        args.processes,
    )
    print(f"{'':58}" + "".join(f"{k:>12}" for k in BAR))
    print(_row("the bar", BAR))
    for part, tally in tallies.items():
        print(_row(_title(part, tally), tally.scores()))
    if TIMING in parts:
        cores = os.cpu_count()
        print(f"a clip of 2 s, 128x128, on {cores} cores: {one_clip_s:.1f} s (the bar: {CLIP_S:.0f} s)")
    failed = one_clip_s > CLIP_S or any(tally.failed() for tally in tallies.values())
    print("below the bar" if failed else "the bar is met")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
