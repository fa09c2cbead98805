"""An adapter that a request names, on a gang of two ranks behind the whole service."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.gpu_service import write_adapter
from tests.pace import patient
from tests.service import running_service

from turnout.engines.wan.builtin import find_weights

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
CLIP = {"model": "clips", "prompt": "a red square", "seed": 7, "size": "64x64", "frames": 9, "steps": 4}


async def rendered(client: httpx.AsyncClient, **more: Any) -> tuple[bytes, dict[str, Any]]:
    video = (await client.post("/v1/videos", json={**CLIP, **more})).raise_for_status().json()
    async with asyncio.timeout(patient(200)):
        while video["status"] in ("queued", "in_progress"):
            await asyncio.sleep(0.1)
            video = (await client.get(f"/v1/videos/{video['id']}")).json()
    assert video["status"] == "completed", video
    return (await client.get(f"/v1/videos/{video['id']}/content")).raise_for_status().content, video


async def test_adapter_changes_the_clip_of_a_gang_and_leaves_nothing_behind(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "style.safetensors", find_weights("builtin:wan-tiny-t2v", tmp_path))
    model = {
        "engine": "wan",
        "device": "cpu",
        "weights": "builtin:wan-tiny-t2v",
        "family": "wan-tiny-t2v",
        "ulysses": 2,
        "loras": {"style": {"weights": str(adapter), "strength": 0.5, "steps": 3}},
    }
    async with (
        running_service(tmp_path, models={"clips": model}) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client,
    ):
        plain, _ = await rendered(client)
        ranks = [process.pid for process in service.ranks()]
        adapted, video = await rendered(client, loras=["style"])
        assert video["loras"] == ["style:0.5"]
        again, _ = await rendered(client)
        assert plain == again and plain != adapted
        assert [process.pid for process in service.ranks()] == ranks and len(ranks) == 2
        refused = await client.post("/v1/videos", json={**CLIP, "loras": ["other"]})
        assert refused.status_code == 400, refused.text
