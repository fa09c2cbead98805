"""What readers who know Ray type first: the example in Python, and Ray's own commands beside `turnout up --ray`."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.on_ray.cluster import ENVIRON, command, settings, tiny
from tests.ports import free_port
from tests.service import Service

from turnout.run.config import dump

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]
EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_services.py"
CHAT = {"engine": "llamacpp", "weights": "builtin:smollm2", "needs": {"memory_bytes": 512 * 2**20}}
VIDEO = {"wan-tiny-t2v": tiny(1)}


def alone() -> dict[str, str]:
    """Without a cluster that others started, and with our commands on the path."""
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**kept, **ENVIRON, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


async def test_the_example_renders_and_chats_on_ray(valkey: str, tmp_path: Path) -> None:
    more = {"blobs": str(tmp_path / "objects"), "blobs_shared": True, "redis_prefix": "turnout"}
    settings(tmp_path, valkey, {**VIDEO, "smollm2": CHAT}, **more)
    words = [sys.executable, str(EXAMPLE), "turnout.yaml", str(free_port())]
    out = tmp_path / "out"
    with out.open("wb") as said:
        example = await asyncio.create_subprocess_exec(
            *words, cwd=tmp_path, env=alone(), stdout=said, stderr=said
        )
    code = await asyncio.wait_for(example.wait(), 800)
    told = out.read_text()
    assert code == 0, told[-5000:]
    assert "event: video.completed" in told and "the manager runs as process" in told
    assert "Turnout has left the cluster." in told


async def test_serve_status_tells_of_what_turnout_up_runs(tmp_path: Path, figures: Any) -> None:
    config = settings(tmp_path, "", VIDEO, redis_url=None)
    service = Service(config.state_dir, {**dump(config), "port": free_port()}, ["--ray"], alone())
    await service.start(400)
    try:
        where = ("--config", str(tmp_path / "turnout.yaml"))
        shown = await command(alone(), sys.executable, "-m", "turnout", "ray", "status", "--json", *where)
        dashboard = json.loads(shown.splitlines()[-1])["dashboard"]
        assert dashboard.startswith("http://127.0.0.1:")
        told = await command(alone(), "serve", "status", "-a", dashboard)
        assert "VideoGenerator-wan-tiny-t2v-0" in told and "Manager" in told
    finally:
        await service.stop()
    figures(f"ray: `serve status` beside `turnout up --ray`, at {dashboard}")
