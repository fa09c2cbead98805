"""`turnout restore` on a running service: a fresh one takes the copy without force, and goes on with it by itself."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
from tests.conftest import wait_until
from tests.held_model import Gate, held_model
from tests.pace import patient
from tests.service import Service, running_service


def run(service: Service, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "turnout", *arguments, "--config", str(service.config)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=patient(120), check=False)


def turnout(service: Service, *arguments: str) -> str:
    done = run(service, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_fresh_service_takes_a_copy_and_goes_on_with_it(tmp_path: Path) -> None:
    copy, models = tmp_path / "copy", {"held": held_model(tmp_path)}
    Gate(tmp_path).hold(0)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    async with running_service(tmp_path / "first", models=models) as first:
        token = first.key_of("acme")
        async with first.client(token) as http:
            body = {"prompt": "a red ball", "model": "held"}
            video = (await http.post("/v1/videos", json=body)).raise_for_status().json()["id"]
        turnout(first, "backup", str(copy))
        Gate(tmp_path).open()
    async with running_service(tmp_path / "second", models=models) as second:
        assert "keys restored" in turnout(second, "restore", str(copy))
        async with second.client(token) as http:

            async def known() -> bool:
                try:
                    return (await http.get(f"/v1/videos/{video}")).status_code == 200
                except httpx.HTTPError:
                    return False

            await wait_until(known, "the tenant's key and video to be known", 120)

            async def rendered() -> bool:
                try:
                    found = (await http.get(f"/v1/videos/{video}")).json()
                except httpx.HTTPError:
                    return False
                return found.get("status") == "completed"

            await wait_until(rendered, "the video to be rendered by the worker that was there before", 240)
        async with second.client() as http:

            async def ready() -> bool:
                return (await http.get("/ready")).json()["status"] == "ready"

            await wait_until(ready, "all parts to be well with the restored data")
            assert (await http.get("/v1/keys")).status_code == 200, "the service's own key is good still"
            again = run(second, "restore", str(copy))
            assert again.returncode != 0 and "--force" in again.stderr, "now it holds data"


def test_too_little_address_space_is_said(tmp_path: Path) -> None:
    command = f"ulimit -v {400 * 1024}; exec {sys.executable} -m turnout up --port 0"
    environ = {**os.environ, "TURNOUT_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
        env=environ,
    )
    assert done.returncode != 0
    assert "400 MiB of address space" in done.stderr and "ulimit -v" in done.stderr
    assert "Traceback" not in done.stderr
