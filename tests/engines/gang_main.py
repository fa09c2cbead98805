"""The ranks of gangs, for tests: each joins a gloo group through a file, renders what the job says, and leaves what it
saw in a folder. As in the product, ranks are forks of a process that has done the imports: one for all gangs. It reads
the paths of jobs and answers with the codes of the ranks."""

import importlib
import itertools
import json
import os
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch._C._distributed_c10d import FileStore
from torch.distributed.tensor import DTensor

from turnout.engines.base import EngineError, EngineSetup, Parallel
from turnout.engines.contract import whole_clip
from turnout.engines.sequence import SequenceShare
from turnout.engines.wan.attention import sdpa
from turnout.engines.wan.load import make_engine
from turnout.engines.wan.wan_model import WanModel
from turnout.processes.tether import tether
from turnout.tasks.video_rules import Lora, LoraUse, VideoSpec


@dataclass(frozen=True, slots=True)
class Task:
    """One render: by which layout, of what, from where."""

    name: str
    weights: str
    parallel: dict[str, Any]
    spec: dict[str, Any]
    image: str | None = None
    checkpoint: str | None = None
    snapshot_at: int | None = None
    loras: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    loras_apart: bool = False
    disagrees: bool = False
    free_bytes: list[int] | None = None
    apart: bool = False
    """Each rank on a machine of its own."""
    full: dict[str, Any] | None = None
    """The rank whose memory runs out, in which method (`module:class.method`), at which call of it."""


def main(job: Path, rank: int) -> None:
    torch.set_num_threads(1)
    plan = json.loads(job.read_text())
    store = FileStore(plan["store"], plan["ranks"])
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=plan["ranks"], timeout=timedelta(seconds=60)
    )
    out = Path(plan["out"])
    (out / f"pieces.{rank}.json").write_text(json.dumps(same_in_pieces(rank, plan["ranks"])))
    make_up_everywhere(rank, plan["ranks"])
    for task in (Task(**each) for each in plan["tasks"]):
        (out / f"{task.name}.{rank}.json").write_text(json.dumps(render(task, rank, out)))
    dist.destroy_process_group()


def same_in_pieces(rank: int, ranks: int) -> dict[int, bool]:
    """Whether attention has one rank's bits with so many pieces of five heads."""
    q, k, v = torch.randn(3, 16 * ranks, 5 * ranks, 8, generator=torch.Generator().manual_seed(0))
    alone = SequenceShare(ranks, rank).mine(SequenceShare().attended(q, k, v, sdpa), 0)
    same: dict[int, bool] = {}
    for pieces in (1, 2, 3, 5, 9):
        share = SequenceShare(ranks, rank, dist.group.WORLD, pieces)
        seen = share.attended(share.mine(q, 0), share.mine(k, 0), share.mine(v, 0), sdpa)
        assert share.exchanged == 2 * min(pieces, 5) and not share.under_way
        same[pieces] = seen.equal(alone)
    return same


def make_up_everywhere(rank: int, ranks: int) -> None:
    """Rank 0 has no memory for the nth message of two blocks of three pieces, and sends the rest as zeros."""
    q = torch.zeros(2, 5 * ranks, 8)
    for place in range(2 * 6):
        share = SequenceShare(ranks, rank, dist.group.WORLD, 3)

        def attend(q: torch.Tensor, *_: torch.Tensor, place: int = place, share: Any = share) -> torch.Tensor:
            if rank == 0 and share.exchanged >= place:
                raise torch.OutOfMemoryError
            return q

        try:
            for _ in range(2):
                share.attended(q, q, q, attend)
            share.whole(q, 0)
        except torch.OutOfMemoryError:
            share.make_up(2, (2 * ranks, 5 * ranks, 8), 5 * ranks * 8, q)
        assert share.exchanged == 2 * 6 + 1 and not share.under_way


@contextmanager
def running_full(task: Task, rank: int) -> Iterator[None]:
    if task.full is None or task.full["rank"] != rank:
        yield
        return
    calls, (module, _, path) = itertools.count(1), task.full["method"].partition(":")
    owner, method = path.split(".")
    kind = getattr(importlib.import_module(module), owner)
    plain = getattr(kind, method)

    def full(*args: Any) -> Any:
        if next(calls) == task.full["call"]:  # pyright: ignore[reportOptionalSubscript]
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(*args)

    with mock.patch.object(kind, method, full):
        yield


def render(task: Task, rank: int, out: Path) -> dict[str, Any]:
    host = f"machine-{rank}" if task.apart else "machine"
    try:
        with running_full(task, rank), mock.patch.object(socket, "gethostname", lambda: host):
            return rendered(task, rank, out)
    except EngineError as err:
        return {"refused": type(err).__name__, "message": str(err)}


def rendered(task: Task, rank: int, out: Path) -> dict[str, Any]:
    engine = make_engine(
        EngineSetup(
            Path(task.weights),
            Parallel(**task.parallel),
            loras=tuple(Lora(**lora) for lora in task.loras),
            loras_apart=task.loras_apart,
        )
    )
    if task.free_bytes is not None:
        free = task.free_bytes[rank]
        WanModel.free_bytes = lambda self: free
    # As on GPUs: every rank decodes.
    cast("Any", WanModel).decoding_ranks = property(lambda model: model.layout.parallel.ranks)
    uses = tuple(LoraUse(**use) for use in task.spec.get("loras", ()))
    spec = VideoSpec(**{**task.spec, "guidance": tuple(task.spec["guidance"]), "loras": uses})
    # Only rank 0 is given bytes, as a gang would do it.
    leads = rank == 0
    if task.checkpoint is not None:
        rendering = engine.resume(spec, Path(task.checkpoint).read_bytes() if leads else b"")
    else:
        rendering = engine.begin(spec, Path(task.image).read_bytes() if task.image and leads else None)
    if task.disagrees and not leads:
        cast("Any", rendering._cache).may_skip = lambda *_: (
            True
        )  # as a rank that rounds differently would decide
    began = rendering.step
    while rendering.step < rendering.of:
        if leads and rendering.step == task.snapshot_at:
            (out / f"{task.name}.checkpoint").write_bytes(rendering.snapshot())
            (out / f"{task.name}.webp").write_bytes(rendering.preview())
        rendering.advance()
    save_file({"latents": rendering.latents.contiguous()}, out / f"{task.name}.{rank}.safetensors")
    frames = whole_clip(rendering.decode())
    if frames is not None:
        np.save(out / f"{task.name}.npy", frames)
    return {
        "began": began,
        "decoded": None if frames is None else list(frames.shape),
        "holds_text": engine.model.leader is not None,
        "held_share": held_share(engine.model.experts[0]),
        "apart": engine.model.layout.spans_machines,
    }


def held_share(expert: torch.nn.Module) -> float:
    """The part of the expert's weights that lies in this process."""
    weights = list(expert.parameters())
    here = sum((w.to_local() if isinstance(w, DTensor) else w).numel() for w in weights)
    return here / sum(w.numel() for w in weights)


def forked(job: Path, rank: int) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        tether(os.getppid())
        log = os.open(job.with_name(f"rank{rank}.log"), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        main(job, rank)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)  # what the other process began is not ours to end


if __name__ == "__main__":
    for line in sys.stdin:
        job = Path(line.strip())
        pids = [forked(job, rank) for rank in range(json.loads(job.read_text())["ranks"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)
