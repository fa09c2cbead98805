"""Engines that are not Wan, through the whole service: one by its import path, and LTX-Video on two ranks. Their files are in
S3."""

import io
from pathlib import Path

import av
import httpx
import pytest
from tests.conftest import wait_until
from tests.service import running_service

pytestmark = pytest.mark.timeout(600)

RULES = {"default_size": "64x64", "default_frames": 9, "steps": 4, "fps": 8}


async def test_a_class_of_ones_own_and_ltx_render_and_are_downloaded_from_s3(tmp_path: Path, s3: str) -> None:
    from tests.engines.tiny_ltx import make_tiny_ltx

    ltx = make_tiny_ltx(tmp_path / "tiny-ltx")
    template = {
        "video_engine": "turnout.engines.template:TemplateEngine",
        "weights": str(tmp_path),
        "rules": RULES,
    }
    models = {
        "mine": template,
        "ltx": {"video_engine": "ltx", "family": "ltx-video", "weights": str(ltx), "rules": RULES, "cfg": 2},
    }
    async with (
        running_service(
            tmp_path,
            models=models,
            checkpoint_steps=1,
            preview_steps=1,
            blobs="s3://vid/turnout",
            blobs_endpoint=s3,
        ) as service,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=60) as client,
    ):
        posted = [
            (await client.post("/v1/videos", json={"model": model, "prompt": "a red ball"})).json()
            for model in models
        ]
        for video in posted:

            async def done(video_id: str = video["id"]) -> bool:
                answer = (await client.get(f"/v1/videos/{video_id}")).json()
                assert answer["status"] != "failed", answer
                return answer["status"] == "completed"

            await wait_until(done, "the clip to be made", 300)
            content = f"/v1/videos/{video['id']}/content"
            elsewhere = await client.get(content)
            assert elsewhere.status_code == 302
            assert elsewhere.headers["location"].startswith(s3)
            mp4 = (await client.get(content, follow_redirects=True)).content
            with av.open(io.BytesIO(mp4), "r") as clip:
                assert sum(1 for _ in clip.decode(video=0)) == 9
            thumbnail = await client.get(f"{content}?variant=thumbnail", follow_redirects=True)
            assert thumbnail.status_code == 200
    assert not (service.state_dir / "objects").exists()
