"""`turnout up` on the state directory of an earlier release: nothing is lost, and what was under way goes on.

The archive is the directory as 0.2.0 left it when it was stopped while it rendered `resumed`: two API keys (one revoked), two
models registered over HTTP, a budget, a webhook secret, a video that is done, one that waits for a gang that nobody started.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import httpx
from tests.conftest import wait_until
from tests.service import Service

STATE = Path(__file__).parents[1] / "fixtures" / "state-0.2.0.tar.xz"
SETTINGS = {"retention_s": 630_720_000.0, "gpu_prices": {"*": 1.0}, "budgets": {"acme": {"month": 100}}}


def token(state: Path, name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {json.loads((state / f'{name}.json').read_text())['token']}"}


async def test_a_service_goes_on_with_what_the_release_before_left(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with tarfile.open(STATE) as archive:
        archive.extractall(state)  # ours, so no filter, which early releases of 3.11 lack
    state.chmod(0o700)
    service = Service(state, SETTINGS)
    await service.start()
    try:
        async with httpx.AsyncClient(base_url=service.url, headers=token(state, "acme"), timeout=30) as http:

            async def video(name: str) -> dict[str, Any]:
                return (await http.get(f"/v1/videos/{name}")).raise_for_status().json()

            done = await video("done")
            assert (done["status"], done["seed"]) == ("completed", 7)
            content = await http.get("/v1/videos/done/content")
            assert content.status_code == 200 and content.content[4:8] == b"ftyp"
            assert (await video("waiting"))["status"] == "queued"

            assert (await http.get("/v1/models", headers=token(state, "gone"))).status_code == 401
            shown = {
                m["id"]: m for m in (await http.get("/v1/models", headers=service.headers)).json()["data"]
            }
            assert (shown["later"]["ulysses"], shown["later"]["runner"]) == (4, "external")
            assert (shown["llm"]["tensor_parallel_size"], shown["llm"]["max_model_len"]) == (2, 4096)
            budgets = (await http.get("/v1/budgets", headers=service.headers)).json()["data"]
            assert {b["tenant"]: b["month"] for b in budgets} == {"acme": 100.0, "other": 50.0}
            audited = (await http.get("/v1/audit", headers=service.headers)).json()["data"]
            assert "key.revoked" in {entry["action"] for entry in audited}

            async def rendered() -> bool:
                return (await video("resumed"))["status"] == "completed"

            await wait_until(rendered, "the video that was under way", 240)
            assert (await video("resumed"))["failures"] == 0
    finally:
        await service.stop()
