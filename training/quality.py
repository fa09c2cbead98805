"""Judges the shipped weights: draws the held-out prompts on the CPU, reads the clips, prints the table of the bar.

    python -m training.quality [time] [t2v] [ti2v] [pictures] [--prompts 200] [--pictures 40] [--weights DIR]
    python -m training.quality --everyday [--prompts 150] [--mode fp8]
    python -m training.quality --modes [--prompts 150] [--weights DIR] [--processes 12]

The first judges combinations that training never shows, the second wordings that it never shows, 150 in English and 150 in
Chinese. `--mode` renders on a GPU instead, in one of the ways in which it trades exactness for speed; `--modes` judges the
everyday bar in each of these, with a row a mode and language.

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
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch

from training.checker import Verdict, verdict_on
from training.draw import draw, pack
from training.everyday import everyday, meant
from training.first_bar import first_bar
from training.fit_vae import psnr
from training.pool import table
from training.shipped import WEIGHTS, Studio, as_png
from training.world import Clip
from turnout.fleet.model_rules import Dtype

BAR = {"colour": 95.0, "shape": 85.0, "motion": 90.0, "background": 95.0}
EVERYDAY_BAR = {"colour": 95.0, "shape": 92.0, "motion": 90.0, "background": 93.0, "all": 80.0}
FRAME_0_DB = 28.0
CLIP_S = 20.0
TIMING = "time"
PARTS = {"t2v": "wan-tiny-t2v", "ti2v": "wan-tiny-ti2v", "pictures": "wan-tiny-ti2v"}
LANGUAGES = {"en": "wan-tiny-t2v", "zh": "wan-tiny-t2v"}
MODELS = PARTS | LANGUAGES


@dataclass(frozen=True, slots=True)
class Mode:
    """How clips are rendered: what a model is loaded with, and what each request asks for beyond its prompt."""

    device: str = "cpu"
    dtype: Dtype = "float32"
    fp8: bool = False
    wishes: tuple[tuple[str, float], ...] = ()


AS_SHIPPED = Mode()
BFLOAT16 = Mode("cuda", "bfloat16")
GPU_MODES = {
    "bfloat16": BFLOAT16,
    "fp8-attention": replace(BFLOAT16, wishes=(("fp8_attention", True),)),
    "fp8": replace(BFLOAT16, fp8=True),
    "fp8-both": replace(BFLOAT16, fp8=True, wishes=(("fp8_attention", True),)),
    "guided-0.75": replace(BFLOAT16, wishes=(("guided_share", 0.75),)),
    "cache-0.1": replace(BFLOAT16, wishes=(("step_cache", 0.1),)),
    "float32": Mode("cuda", "float32"),
    "guided-0.5": replace(BFLOAT16, wishes=(("guided_share", 0.5),)),
    "cache-0.2": replace(BFLOAT16, wishes=(("step_cache", 0.2),)),
}
"""What matters most comes first: a run that is cut short has judged that."""


@cache
def asked(part: str) -> list[tuple[Clip, str]]:
    if part in LANGUAGES:
        return [(meant(meaning), said) for said, meaning in everyday(part)]
    return first_bar()


def bar_of(part: str) -> dict[str, float]:
    return EVERYDAY_BAR if part in LANGUAGES else BAR


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt of a bar, by its place in the list, for one part of the table."""

    part: str
    place: int
    weights: Path
    mode: Mode = AS_SHIPPED


@dataclass(frozen=True, slots=True)
class Judged:
    job: Job
    verdict: Verdict
    first_db: float | None  # how like frame 0 is to what the VAE shows of the given picture


_studios: dict[tuple[str, Mode], Studio] = {}


def _render(job: Job) -> Judged:
    torch.set_num_threads(1)
    mode, wishes = job.mode, dict(job.mode.wishes)
    loaded = MODELS[job.part], replace(mode, wishes=())
    if loaded not in _studios:
        _studios[loaded] = Studio(MODELS[job.part], job.weights, mode.dtype, mode.device, mode.fp8)
    studio = _studios[loaded]
    clip, said = asked(job.part)[job.place]
    if job.part != "pictures":
        return Judged(job, verdict_on(clip, studio.render(said, job.place, **wishes)), None)
    first = as_png(draw(pack([clip]), 1)[0][0, 0])
    made = studio.render(said, job.place, first, **wishes)
    return Judged(job, verdict_on(clip, made), psnr(made[0], studio.shown(first)))


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
        bar = bar_of(self.found[0].job.part)
        return any(scores[k] < least for k, least in bar.items()) or (
            likeness is not None and likeness < FRAME_0_DB
        )


def _row(title: str, scores: dict[str, float]) -> str:
    return f"{title:58}" + "".join(f"{share:>11.1f}%" for share in scores.values())


def _title(part: str, tally: Tally) -> str:
    if (likeness := tally.worst_first_db()) is not None:
        return f"{MODELS[part]}, first frame ({len(tally.found)}; frame 0 at least {likeness:.1f} dB)"
    return f"{MODELS[part]}, {part if part in LANGUAGES else 'words'} ({len(tally.found)} prompts)"


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
                said = asked(judged.job.part)[judged.job.place][1]
                print(f"{judged.job.part}: {', '.join(wrong)} wrong in: {said}", flush=True)
            now = " ".join(f"{k} {v:.1f}" for k, v in tally.scores().items())
            print(f"\r{done}/{len(jobs)} clips, {spent / 60:.1f} min; {judged.job.part}: {now}   ",
                  end="", file=sys.stderr, flush=True)  # fmt: skip
    print(file=sys.stderr)
    return tallies


def judge_modes(weights: Path, prompts: int, processes: int) -> bool:
    """Judges the everyday bar in each mode of a GPU, a row at a time; says whether any mode failed or lies below it.

    One pool serves all modes, so that each process starts CUDA and loads a model once; a mode that fails ends it.
    """
    print(f"{'mode':16}{'':14}" + "".join(f"{k:>12}" for k in EVERYDAY_BAR) + f"{'clips':>8}{'s':>8}")
    print(f"{'the bar':30}" + "".join(f"{least:>11.1f}%" for least in EVERYDAY_BAR.values()), flush=True)
    failed, pool = False, None
    for name, mode in GPU_MODES.items():
        began = time.monotonic()
        jobs = [
            Job(part, place, weights, mode)
            for place in range(prompts)
            for part in LANGUAGES
            if place < len(asked(part))
        ]
        tallies = {part: Tally() for part in LANGUAGES}
        pool = pool or multiprocessing.get_context("spawn").Pool(processes)
        try:
            for judged in pool.imap_unordered(_render, jobs):
                tallies[judged.job.part].found.append(judged)
        except Exception as error:  # noqa: BLE001 — a GPU that failed in one mode may do in the next
            print(f"{name:16}failed: {type(error).__name__}: {error}", flush=True)
            pool.terminate()
            failed, pool = True, None
            continue
        spent = time.monotonic() - began
        for part, tally in tallies.items():
            shares = "".join(f"{share:>11.1f}%" for share in tally.scores().values())
            print(f"{name:16}{part:14}{shares}{len(tally.found):>8}{spent:>8.1f}", flush=True)
            failed |= tally.failed()
    if pool:
        pool.terminate()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", help=f"{TIMING}, {', '.join(MODELS)}: which parts of the table; all unless said"
    )
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument(
        "--everyday", action="store_true", help="the bar of everyday wordings, in both languages"
    )
    parser.add_argument("--prompts", type=int, default=200, help="at most so many of each part")
    parser.add_argument("--pictures", type=int, default=40, help="how many prompts to try with a first frame")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--mode", choices=GPU_MODES, help="render on a GPU in this way; on the CPU unless said")
    way.add_argument("--modes", action="store_true", help="the everyday bar in every way of a GPU")
    args = parser.parse_args()
    if args.modes:
        failed = judge_modes(args.weights, args.prompts, args.processes)
        print("below the bar" if failed else "the bar is met")
        return int(failed)
    mode = GPU_MODES[args.mode] if args.mode else AS_SHIPPED
    parts = args.parts or (list(LANGUAGES) if args.everyday else [TIMING, *PARTS])
    if unknown := set(parts) - {TIMING, *MODELS}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    one_clip_s = time_one_clip(args.weights) if TIMING in parts else 0.0
    tallies = judge_all(
        (
            Job(part, place, args.weights, mode)
            for part in parts
            if part != TIMING
            for place in range(min(len(asked(part)), args.pictures if part == "pictures" else args.prompts))
        ),
        args.processes,
    )
    print(f"{'':58}" + "".join(f"{k:>12}" for k in EVERYDAY_BAR))
    for part, tally in tallies.items():
        print(_row("the bar", bar_of(part)))
        print(_row(_title(part, tally), tally.scores()))
    if TIMING in parts:
        cores = os.cpu_count()
        print(f"a clip of 2 s, 128x128, on {cores} cores: {one_clip_s:.1f} s (the bar: {CLIP_S:.0f} s)")
    failed = one_clip_s > CLIP_S or any(tally.failed() for tally in tallies.values())
    print("below the bar" if failed else "the bar is met")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
