"""docs/experience-centre.md, step by step: its own file and commands, a test issuer, a check and a robot on loopback, and Chromium over TLS."""

import asyncio
import json
import shlex
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.conftest import free_port, wait_until
from tests.doc_blocks import blocks
from tests.gateways import picture
from tests.issuer import CLIENT, SECRET, running_issuer
from tests.page.conftest import Browser, Visitor, chromium_on
from tests.service import Service
from tests.tasks.test_robots import OK, robot_serving

PAGE = Path(__file__).parents[2] / "docs" / "experience-centre.md"
ASK = """([prompt]) => fetch("/v1/videos", {method: "POST", headers: {"Content-Type": "application/json"},
  body: JSON.stringify({prompt, steps: 4, frames: 5})}).then(async r => [r.status, (await r.json()).error?.code ?? ""])"""


class Check:
    """The operator's own program: says yes, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        self.asked.append(json.loads(await reader.readexactly(length)))
        said = b'{"verdict": "pass"}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
        await writer.drain()
        writer.close()


def settings_of_the_page(folder: Path, port: int, issuer: str, check: str) -> dict[str, Any]:
    """All of the page's file, with the addresses of this machine in place of the examples."""
    said: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.language == "yaml":
            said |= yaml.safe_load(block.text.replace("/etc/turnout", str(folder)))
    said |= {"host": "127.0.0.1", "port": port, "public_url": f"https://localhost:{port}"}
    said["oidc"] |= {"issuer": issuer, "client_id": CLIENT}
    said["content_check"]["url"] = check
    return said


def _make_certificate(folder: Path) -> None:
    [command] = [b.text for b in blocks(PAGE) if b.text.startswith("openssl ")]
    subprocess.run(shlex.split(command), cwd=folder, check=True, capture_output=True)


@asynccontextmanager
async def centre(folder: Path, robot: str) -> AsyncIterator[tuple[Service, Browser, asyncio.Server, Check]]:
    _make_certificate(folder)
    (folder / "logo.png").write_bytes(picture())
    (folder / "terms.txt").write_text("Be kind.")
    port, check = free_port(), Check()
    secrets = {"TURNOUT_OIDC_CLIENT_SECRET": SECRET, "TURNOUT_NOTICES": robot}
    secrets["TURNOUT_ALLOW_PRIVATE_URLS"] = "true"  # the robot is on this machine
    with running_issuer(ann={"name": "Ann", "groups": ["turnout-admins"]}) as issuer:
        server = await asyncio.start_server(check.serve, "127.0.0.1", 0)
        where = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/check"
        settings = settings_of_the_page(folder, port, issuer.url, where)
        issuer.redirect_uri = f"{settings['public_url']}/v1/login/oidc/callback"
        service = Service(folder / "state", settings, environ=secrets)
        await service.start(120)
        try:
            async with chromium_on(settings["public_url"], "--ignore-certificate-errors") as browser:
                yield service, browser, server, check
        finally:
            server.close()
            await service.stop()


async def _accept(visitor: Visitor) -> None:
    await visitor.tab.goto(visitor.url)
    await visitor.tab.locator(".terms input").check()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_every_step_of_the_experience_centre(tmp_path: Path) -> None:
    async with (
        robot_serving(OK["wecom"]) as robot,
        centre(tmp_path, robot.url("wecom")) as (_, browser, server, check),
    ):
        trusting = ssl.create_default_context(cafile=str(tmp_path / "fullchain.pem"))
        async with httpx.AsyncClient(verify=trusting, base_url=browser.url, timeout=60) as http:
            assert (await http.get("/ready")).json()["status"] == "ready"
            site = (await http.get("/v1/site")).json()
        assert site["name"] == "Example Video Lab" and "ICP" in site["footer"][0]["text"]
        ann = await browser.visitor()
        await _accept(ann)
        await ann.tab.get_by_role("link", name="Log in with Example").click()
        await ann.tab.get_by_role("button", name="Log in").click()
        await ann.tab.get_by_role("link", name="Operate").wait_for()
        await ann.go("operate/people")
        await ann.tab.locator("tbody tr").filter(has_text="Ann").wait_for()
        cookies = {c["name"]: c for c in await ann.tab.context.cookies()}
        assert cookies["__Host-turnout_session"]["secure"]
        guest = await browser.visitor("phone", lang="zh", is_refused=True)
        await _accept(guest)
        await guest.tab.locator(".login-guest button").click()
        await guest.inside()
        assert await guest.tab.evaluate(ASK, ["something Forbidden"]) == [400, "content_refused"]
        card = await guest.ask_for("a red square moving right")
        await card.locator("video").wait_for()
        assert {one["type"] for one in check.asked} == {"prompt", "result"}
        mp4 = await guest.tab.evaluate(
            "id => fetch(`/v1/videos/${id}/content`).then(r => r.arrayBuffer())"
            ".then(b => new TextDecoder('latin1').decode(b))",
            await card.get_attribute("data-task"),
        )
        assert "AIGC" in mp4 and "Example Video Lab" in mp4, "the mark's metadata"
        more = [await guest.tab.evaluate(ASK, ["a blue circle"]) for _ in range(3)]
        assert more == [[200, ""], [200, ""], [429, "daily_limit"]]
        server.close()
        await server.wait_closed()
        assert await ann.tab.evaluate(ASK, ["a blue circle"]) == [503, "check_unavailable"]
        await wait_until(
            lambda: any("新成员加入" in str(body) for _, body in robot.got), "the group to hear", 60
        )
