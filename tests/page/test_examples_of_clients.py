"""The example clients of `examples/clients` do what they say, against a running service."""

import asyncio
import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from tests.conftest import free_port, wait_until
from tests.page.conftest import Browser, loaded
from tests.service import Service

from turnout.tasks.task_rules import TenantId
from turnout.tasks.webhook_outbox import WebhookMessage
from turnout.tasks.webhook_secret_rules import secret_of
from turnout.tasks.webhooks import signed_headers

EXAMPLES = Path(__file__).parents[2] / "examples" / "clients"
QUICK = {"prompt": "a red square moving right", "size": "64x64", "frames": 5, "steps": 4}


@pytest.mark.asyncio(loop_scope="session")
async def test_ten_lines_of_html_and_a_socket_follow_a_video(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    key = service.key_of()
    environ = {**os.environ, "TURNOUT_URL": service.url, "TURNOUT_API_KEY": key}
    heard = tmp_path / "heard"
    with heard.open("wb") as out:
        follower = await asyncio.create_subprocess_exec(
            sys.executable, str(EXAMPLES / "follow_events.py"), stdout=out, env=environ
        )
    try:
        async with service.client(key) as http:

            async def is_told() -> bool:
                one = (await http.post("/v1/videos", json=QUICK)).raise_for_status().json()
                await http.post(f"/v1/videos/{one['id']}/cancel")
                return bool(heard.read_text())

            await wait_until(is_told, "the socket")  # it hears nothing of what was before
            made = (await http.post("/v1/videos", json=QUICK)).raise_for_status().json()
            shown = (await http.get(f"/v1/videos/{made['id']}")).json()
        tab = (await browser.visitor()).tab
        # From the service's own origin; elsewhere `cors_origins` must name the page's.
        await tab.route("**/watch.html*", lambda route: route.fulfill(path=EXAMPLES / "watch.html"))
        await tab.goto(f"{service.url}/watch.html?{urlencode({'events': shown['events_url']})}")
        await tab.locator("video:not([hidden])").wait_for()
        await loaded(tab.locator("video"))
        await wait_until(lambda: f"{made['id']} video.completed 100" in heard.read_text(), "the socket's end")
    finally:
        follower.terminate()
        await follower.wait()


if shutil.which("go"):  # it is not installed for this alone

    @pytest.mark.asyncio(loop_scope="session")
    async def test_the_go_client_submits_follows_and_downloads(service: Service, tmp_path: Path) -> None:
        environ = {
            **os.environ,
            "TURNOUT_URL": service.url,
            "TURNOUT_API_KEY": service.key_of(),
            "GOCACHE": str(tmp_path / "cache"),
            "GOFLAGS": "-mod=mod",
            "GOTOOLCHAIN": "local",
        }
        file = tmp_path / "square.mp4"
        client = await asyncio.create_subprocess_exec(
            "go", "run", ".", str(QUICK["prompt"]), str(file), cwd=EXAMPLES / "go", env=environ, stdout=-1
        )
        said, _ = await client.communicate()
        assert client.returncode == 0
        assert b"video.completed" in said
        assert file.read_bytes()[4:8] == b"ftyp"


async def test_the_webhook_receiver_believes_what_is_signed(tmp_path: Path) -> None:
    secret, port, heard = secret_of(b"s" * 32), free_port(), tmp_path / "heard"
    with heard.open("wb") as out:
        receiver = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLES / "webhook_receiver.py"),
            str(port),
            stdout=out,
            env={**os.environ, "TURNOUT_WEBHOOK_SECRET": secret},
        )
    body = json.dumps({"type": "video.completed", "data": {"id": "video_1", "url": "/a"}})
    message = WebhookMessage("task-1", TenantId("acme"), "", body)
    fresh = dict(signed_headers(message, ["whsec_b3RoZXI=", secret], time.time()))
    tries = [(fresh, 204), (fresh, 204), (signed_headers(message, [secret], time.time() - 3600), 401)]
    tries += [({**fresh, "webhook-id": "task-2"}, 401), ({}, 401)]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            await wait_until(lambda: listens(port), "the receiver to listen")
            answers = [
                (await http.post("/", content=body, headers=headers)).status_code for headers, _ in tries
            ]
        assert answers == [status for _, status in tries]
        assert heard.read_text() == "video.completed video_1 /a\n", "what comes twice is told once"
    finally:
        receiver.terminate()
        await receiver.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
