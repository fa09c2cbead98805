"""The clips that training draws from, described and worded by many processes at once."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice
from multiprocessing.pool import Pool

import torch

from training import words
from training.captions import loose_caption
from training.checker import Verdict, verdict_on
from training.draw import SLOTS, Packed, pack
from training.meaning import labels
from training.pictures import shots
from training.scenes import scenes
from training.world import SEEN, Clip, clips

_CHUNK = 1024
_SCENES = 0.1


@dataclass(frozen=True, slots=True)
class ClipPool:
    """Drawn clips, then shots of pictures: `ids` and `goals` of both in that order."""

    packed: Packed
    shots: torch.Tensor  # [shots, 5]
    ids: torch.Tensor  # [N, wordings, LONGEST]
    goals: torch.Tensor  # [N, fields]


def _worded(seed: int, made: list[Clip], wordings: int) -> list:
    rng = random.Random(seed)
    ids = words.encode([loose_caption(rng, clip) for clip in made for _ in range(wordings)], rng)
    return [ids.numpy(), torch.tensor([labels(clip) for clip in made], dtype=torch.int16).numpy()]


def _drawn(job: tuple[int, int, int]) -> list:
    seed, count, wordings = job
    staged = round(_SCENES * count)
    made = [*islice(clips(seed, SEEN), count - staged), *islice(scenes(seed), staged)]
    packed = pack(made, SLOTS)
    return [
        packed.things.numpy(),
        packed.shapes.numpy(),
        packed.grounds.numpy(),
        *_worded(seed, made, wordings),
    ]


def _filmed(job: tuple[int, int, int]) -> list:
    seed, count, wordings = job
    made = list(islice(shots(seed), count))
    numbers = torch.tensor([n for _, n in made], dtype=torch.float32)
    return [numbers.numpy(), *_worded(seed, [clip for clip, _ in made], wordings)]


def make_pool(workers: Pool, clips: int, shots: int, wordings: int, seed: int) -> ClipPool:
    def run(work, count: int, salt: int) -> list[torch.Tensor]:
        jobs = [
            (seed * 1_000_003 + salt + start, min(_CHUNK, count - start), wordings)
            for start in range(0, count, _CHUNK)
        ]
        columns = zip(*workers.imap(work, jobs), strict=True)
        return [torch.cat([torch.from_numpy(part) for part in column]) for column in columns]

    things, shapes, grounds, ids, goals = run(_drawn, clips, 0)
    numbers, more_ids, more_goals = run(_filmed, shots, 500_009)
    return ClipPool(
        Packed(things, shapes, grounds),
        numbers,
        torch.cat([ids, more_ids]).unflatten(0, (clips + shots, wordings)),
        torch.cat([goals, more_goals]),
    )


def _verdict(job: tuple[Clip, object]) -> Verdict:
    torch.set_num_threads(1)
    clip, frames = job
    return verdict_on(clip, torch.from_numpy(frames).float() / 255)


def verdicts(workers: Pool, asked: list[Clip], frames: torch.Tensor) -> list[Verdict]:
    """What the checker says of frames [N, T, 3, H, W] in 0..1."""
    pictures = (frames.clamp(0, 1) * 255).round().byte().cpu().numpy()
    return workers.map(_verdict, list(zip(asked, pictures, strict=True)), chunksize=4)


def table(found: list[Verdict]) -> dict[str, float]:
    """Per cent right, by attribute."""
    return {
        name: round(100 * sum(getattr(v, name) for v in found) / len(found), 1)
        for name in ("colour", "shape", "motion", "background", "all")
    }
