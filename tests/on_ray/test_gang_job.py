"""The entry point of a RayJob as a process: one task of a running service, rendered by actors on a cluster."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.service import running_service

pytestmark = [pytest.mark.long, pytest.mark.timeout(1000)]
MODEL = "wan-tiny-t2v"
SETTINGS: dict[str, Any] = {
    "worker_engines": ["llamacpp"],
    "models": {MODEL: {"weights": f"builtin:{MODEL}", "family": MODEL, "ulysses": 2, "runner": "job"}},
}


async def test_a_ray_jobs_entry_point_renders_its_task_and_ends_with_the_verdict(tmp_path: Path) -> None:
    async with (
        running_service(tmp_path, **SETTINGS) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as http,
    ):
        body = {"prompt": "a ball", "model": MODEL, "seed": 7, "steps": 4, "frames": 9, "size": "64x64"}
        video = (await http.post("/v1/videos", json=body)).json()["id"]
        key = tmp_path / "worker-key"
        key.write_text(service.key_of(role="worker"))
        config = tmp_path / "job.yaml"  # what a job's pod has: no word of Redis or the objects
        config.write_text(yaml.safe_dump({"models": SETTINGS["models"], "state_dir": str(tmp_path / "job")}))
        words = ["gang", "--ray", "--config", str(config), "--model", MODEL, "--once", "--idle-exit", "1"]
        words += ["--join", service.url, "--token-file", str(key)]
        for _ in range(2):  # a second one finds nothing to render
            job = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "turnout", *words), env={**os.environ, "RAY_ADDRESS": ""}
            )
            try:
                assert await asyncio.wait_for(job.wait(), 400) == 0
            finally:
                if job.returncode is None:
                    job.kill()
        assert (await http.get(f"/v1/videos/{video}")).json()["status"] == "completed"
