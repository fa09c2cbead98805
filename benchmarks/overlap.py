"""Two ranks share a sequence over a slow network: attention in one piece, and in pieces whose exchanges overlap it.

The network is a pair of virtual interfaces in two network namespaces, limited by `tc`: this needs root on Linux.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import Table, say
from benchmarks.machine import Pressure

MBIT_S = 200
PIECES = (1, 2, 4)
ROUNDS = 9
HEADS, HEAD_WIDTH, LAYERS = 8, 64, 2
LATENT = (4, 64, 64)
TOKENS = LATENT[0] * LATENT[1] * LATENT[2] // 4
_DEADLINE_S = 600


async def measure() -> Table:
    """A forward of two ranks over a slow network, with attention in 1, 2 and 4 pieces."""
    return await asyncio.to_thread(_measured)


def _measured() -> Table:
    table = Table(
        f"overlap: seconds a forward, {TOKENS} tokens over two CPU ranks and {MBIT_S} Mbit/s",
        ("pieces", "n", "median", "best", "of one piece", "on paper"),
    )
    pressure = Pressure()
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder:
        try:
            with _slow_network() as names:
                seen = _run_ranks(names, Path(folder))
        except (OSError, subprocess.CalledProcessError) as err:
            said = getattr(err, "stderr", None) or err
            table.notes = [f"Left out: no network namespaces can be made here ({str(said).strip()})."]
            return table
    from turnout.engines.wan.scaling_model import attended_s

    attention_s, sent_s = (statistics.median(seen[part]) for part in ("attention", "sent"))
    whole = statistics.median(seen["1"])
    for pieces in PIECES:
        taken = seen[str(pieces)]
        saved = attended_s(attention_s, sent_s, 1) - attended_s(attention_s, sent_s, pieces)
        table.rows.append(
            (
                pieces,
                len(taken),
                statistics.median(taken),
                min(taken),
                statistics.median(taken) / whole,
                (whole - LAYERS * saved) / whole,
            )
        )
    table.notes = [
        f"Alone, attention takes {LAYERS * attention_s / whole:.2f} of one piece's forward.",
        f"Alone, its messages take {LAYERS * 4 * sent_s / whole:.2f} of one piece's forward.",
        pressure.note(),
    ]
    return table


@contextmanager
def _slow_network() -> Iterator[tuple[str, str]]:
    """Two namespaces that reach each other by an interface `gang`."""
    names = f"turnout-{os.getpid()}-0", f"turnout-{os.getpid()}-1"
    try:
        for name in names:
            _do("ip", "netns", "add", name)
        _do("ip", "-n", names[0], "link", "add", "gang", "type", "veth", "peer", "gang", "netns", names[1])
        for n, name in enumerate(names, start=1):
            _do("ip", "-n", name, "address", "add", f"10.0.0.{n}/24", "dev", "gang")
            _do("ip", "-n", name, "link", "set", "gang", "up")
            rate = ("rate", f"{MBIT_S}mbit", "burst", "64kb", "latency", "400ms")
            _do("tc", "-n", name, "qdisc", "add", "dev", "gang", "root", "tbf", *rate)
        yield names
    finally:
        for name in names:
            subprocess.run(("ip", "netns", "delete", name), capture_output=True, check=False)


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _run_ranks(names: tuple[str, str], folder: Path) -> dict[str, list[float]]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "gang"}
    running: list[subprocess.Popen[bytes]] = []
    try:
        for rank, name in enumerate(names):
            command = (sys.executable, "-m", "benchmarks.overlap", str(rank), str(folder))
            running.append(subprocess.Popen(("ip", "netns", "exec", name, *command), env=environ))
        codes = [each.wait(_DEADLINE_S) for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait()
    if any(codes):
        raise RuntimeError(f"the ranks ended with {codes}")
    return json.loads((folder / "seen.json").read_text())


def _rank(rank: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    from turnout.engines.sequence import SequenceShare
    from turnout.engines.wan.attention import AttentionKernel, sdpa
    from turnout.engines.wan.block_ops import PlainOps
    from turnout.engines.wan.transformer import (
        Runtime,
        StepTimes,
        TextContext,
        TransformerShape,
        WanTransformer,
    )

    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    dist.init_process_group("gloo", store=FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
    attending: list[float] = []

    def attend(q: Any, k: Any, v: Any) -> Any:
        began = time.monotonic()
        seen = sdpa(q, k, v)
        if q.shape == k.shape:  # not to the text
            attending.append(time.monotonic() - began)
        return seen

    width = HEADS * HEAD_WIDTH
    shape = TransformerShape(HEADS, HEAD_WIDTH, LAYERS, width, 16, 16, 64, 64, (1, 2, 2))
    share = SequenceShare(2, rank, dist.group.WORLD)
    runtime = Runtime(PlainOps(), PlainOps(), AttentionKernel("sdpa", attend), share)
    expert = WanTransformer(shape, torch.float32, runtime).eval()
    for parameter in expert.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    latents, text = torch.randn(1, 16, *LATENT), TextContext(torch.randn(1, 32, 64))
    seen: dict[str, list[float]] = {"attention": [], "sent": [], **{str(pieces): [] for pieces in PIECES}}
    wanted = expert(latents, StepTimes(torch.tensor([500.0])), text)
    message = torch.zeros(2, 4, TOKENS // 2, HEADS // 2, HEAD_WIDTH)
    for _ in range(ROUNDS):
        dist.barrier()
        began = time.monotonic()
        share._received(share._send(message))
        seen["sent"].append((time.monotonic() - began) / 4)
        for share.pieces in PIECES:
            attending.clear()
            dist.barrier()
            began = time.monotonic()
            got = expert(latents, StepTimes(torch.tensor([500.0])), text)
            seen[str(share.pieces)].append(time.monotonic() - began)
            assert got.equal(wanted), "pieces change the result"
            if share.pieces == 1:
                seen["attention"].append(sum(attending) / LAYERS)
            if rank == 0:
                say(f"{share.pieces} pieces: {seen[str(share.pieces)][-1]:.2f} s")
    if rank == 0:
        (folder / "seen.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(int(sys.argv[1]), Path(sys.argv[2]))
