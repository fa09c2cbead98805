"""The clips that training draws from, described and worded by many processes at once."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice
from multiprocessing.pool import Pool

import torch

from training import words
from training.captions import loose_caption
from training.checker import Verdict, judge, read
from training.draw import Packed, pack
from training.world import SEEN, Clip, clips

_CHUNK = 2000


@dataclass(frozen=True, slots=True)
class ClipPool:
    packed: Packed
    ids: torch.Tensor  # [N, wordings, LONGEST]


def _chunk(job: tuple[int, int, int]) -> tuple[list, list, list, list]:
    seed, count, wordings = job
    made = list(islice(clips(seed, SEEN), count))
    rng = random.Random(seed)
    ids = words.encode([loose_caption(rng, clip) for clip in made for _ in range(wordings)])
    packed = pack(made)
    return tuple(t.numpy() for t in (packed.things, packed.shapes, packed.grounds, ids))


def make_pool(workers: Pool, count: int, wordings: int, seed: int) -> ClipPool:
    jobs = [
        (seed * 1_000_003 + start, min(_CHUNK, count - start), wordings) for start in range(0, count, _CHUNK)
    ]
    columns = zip(*workers.map(_chunk, jobs), strict=True)
    things, shapes, grounds, ids = (
        torch.cat([torch.from_numpy(part) for part in column]) for column in columns
    )
    return ClipPool(Packed(things, shapes, grounds), ids.unflatten(0, (count, wordings)))


def _verdict(job: tuple[Clip, object]) -> Verdict:
    torch.set_num_threads(1)
    clip, frames = job
    return judge(clip, read(torch.from_numpy(frames).float() / 255, len(clip.things)))


def verdicts(workers: Pool, asked: list[Clip], frames: torch.Tensor) -> list[Verdict]:
    """What the checker says of frames [N, T, 3, H, W] in 0..1."""
    pictures = (frames.clamp(0, 1) * 255).round().byte().cpu().numpy()
    return workers.map(_verdict, list(zip(asked, pictures, strict=True)), chunksize=4)


def table(found: list[Verdict]) -> dict[str, float]:
    """Per cent right, by attribute."""
    return {
        name: round(100 * sum(getattr(v, name) for v in found) / len(found), 1)
        for name in ("colour", "shape", "motion", "background")
    }
