"""`turnout render --ray`, the entry point of a RayJob and of a batch: it brings its own service, renders, and is gone."""

import asyncio
import json
import os
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from tests.conftest import wait_until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]
MODEL = "wan-tiny-t2v"


async def test_a_batch_is_rendered_on_ray_and_nothing_is_left(tmp_path: Path) -> None:
    models = {MODEL: {"weights": f"builtin:{MODEL}", "family": MODEL, "ulysses": 2}}
    (tmp_path / "turnout.yaml").write_text(yaml.safe_dump({"models": models}))
    wishes = [{"prompt": "a red ball", "seed": n, "steps": 2, "frames": 9, "size": "64x64"} for n in (1, 2)]
    (tmp_path / "wishes.jsonl").write_text("\n".join(map(json.dumps, wishes)))
    before = {p.pid for p in psutil.process_iter()}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
    job = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnout", "render", "wishes.jsonl", "--ray", "-o", "videos"),
        *("--results", "results.jsonl"),
        env={**environ, "TURNOUT_STATE_DIR": str(tmp_path / "state"), "RAY_ADDRESS": ""},
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(job.communicate(), 400)
    assert job.returncode == 0, said.decode()[-3000:]
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [result["status"] for result in results] == ["completed"] * 2
    assert [(tmp_path / "videos" / f"{n}.mp4").read_bytes()[4:8] for n in (1, 2)] == [b"ftyp"] * 2
    left: list[str] = []

    def gone() -> bool:
        """Ray's own daemons end a moment after their driver."""
        left[:] = [
            words
            for process in psutil.process_iter()
            if process.pid not in before and str(tmp_path) in (words := _words(process))
        ]
        return not left

    try:
        await wait_until(gone, "all processes to end", 60)
    except BaseException:
        print(*left, sep="\n")
        raise


def _words(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), process.cwd()])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
