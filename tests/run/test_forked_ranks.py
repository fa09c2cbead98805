"""Ranks for a GPU are forks of a process that has imported torch; when an import has touched CUDA, they start afresh."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.pace import patient

from turnout.fleet.declared_models import read_model
from turnout.gang.rank_place import Pod, RankDuties
from turnout.run import forked_ranks
from turnout.run.config import Config
from turnout.tasks.task_rules import GangId

SPOIL = """
import torch
torch.cuda._is_in_bad_fork = lambda: True
torch.cuda.set_device = lambda device: print("a fork of a process that has touched CUDA", flush=True)
"""
START = """
import asyncio
from pathlib import Path
from turnout.run import forked_ranks
from tests.run.test_forked_ranks import start_rank
if __name__ == "__main__":
    forked_ranks._HEAVY[:] = ["spoils_cuda"]
    print(asyncio.run(start_rank(Path({folder!r}))))
"""
DECLARED = {
    "alias": "m",
    "engine": "wan",
    "weights": "builtin:wan-tiny-t2v",
    "family": "wan-tiny-t2v",
    "device": "cuda",
}


async def start_rank(folder: Path) -> str:
    """Starts a rank without Redis and without a GPU; what it logged until it died of that."""
    (folder / "logs").mkdir()
    served = read_model(DECLARED)
    redis = f"unix://{folder}/nothing.sock"
    config = Config().with_settings(state_dir=folder, models=(served,), redis_url=redis, log_level="debug")
    ranks = forked_ranks.ForkedRanks(
        config, RankDuties("m", GangId("g"), once=True), Pod(0, 1, 1, None), folder / "logs"
    )
    process, _ = await ranks.start(0, str(folder / "meeting"))
    await asyncio.wait_for(process.wait(), patient(120))
    return (folder / "logs/g.0.log").read_text()


def test_a_rank_whose_fork_cannot_use_cuda_starts_afresh(tmp_path: Path) -> None:
    (tmp_path / "spoils_cuda.py").write_text(SPOIL)
    # In a process of its own: a fork server belongs to the process that started it, and imports once.
    script = tmp_path / "start.py"
    script.write_text(START.format(folder=str(tmp_path)))
    paths = [str(tmp_path), str(Path(__file__).parents[2]), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=patient(200),
        check=False,
    )
    assert "rank started afresh" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert "a fork of a process" not in done.stdout
