"""The release before this one, on the same state directory: up from it, and back to it.

What a service keeps (keys, sessions, models, the queue, videos, shares, usage) is there after each step, and what was under way goes
on. What only the newer release knows is left alone by the older one, and is there again after the next upgrade.
"""

import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.conftest import wait_until
from tests.doc_blocks import ROOT
from tests.release.installed import Installed
from tests.service import Service

VERSION_FILE = "src/turnout/__init__.py"
SMALL = {"model": "wan-tiny-t2v", "size": "64x64", "frames": 9, "steps": 8, "seed": 7}
LONG = {**SMALL, "steps": 100, "frames": 33, "size": "128x128"}
T = TypeVar("T")
SETTINGS: dict[str, Any] = {"gpu_prices": {"*": 1.0}}


def last_release() -> str:
    """The last commit that named a version, other than this one."""
    words = ["git", "log", "--format=%H", "-G^__version__ = ", "--", VERSION_FILE]
    named = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    here = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return next(commit for commit in named if commit != here.stdout.strip())


def wheel_of(commit: str, there: Installed) -> Path:
    source = there.folder / "source"
    source.mkdir()
    archive = f"git -C '{ROOT}' archive {commit} LICENSE README.md pyproject.toml src | tar -x -C '{source}'"
    there.run("bash", "-c", archive)
    there.uv("build", "--wheel", "-o", there.folder / "old", source)
    return next((there.folder / "old").glob("*.whl"))


@dataclass
class Kept:
    """What a user of the older release has."""

    key: str
    revoked: str
    cookies: httpx.Cookies
    share: str
    done: str
    under_way: str
    waiting: str


class Neighbours:
    def __init__(self, there: Installed) -> None:
        self._there = there

    async def run(self, old: Path, new: Path) -> str:
        kept = await self._with(old, self._make)
        await self._with(new, lambda service: self._upgraded(service, kept))
        await self._with(old, lambda service: self._back(service, kept))
        await self._with(new, lambda service: self._again(service, kept))
        return f"{old.name} → {new.name} → back → again on one state directory"

    async def _with(self, wheel: Path, use: Callable[[Service], Awaitable[T]]) -> T:
        self._there.install("--reinstall-package", "turnout", f"{wheel}[wan]")
        service = Service(
            self._there.folder / "state", SETTINGS, environ=self._there.environ, python=self._there.python
        )
        await service.start()
        try:
            return await use(service)
        finally:
            await service.stop()

    async def _make(self, service: Service) -> Kept:
        key = service.key_of("acme")
        async with service.client() as admin:
            gone = (await admin.post("/v1/keys", json={"tenant": "gone"})).json()
            (await admin.delete(f"/v1/keys/{gone['id']}")).raise_for_status()
            declared = {
                "alias": "later",
                "engine": "wan",
                "model_name": "builtin:wan-tiny-t2v",
                "runner": "external",
            }
            declared |= {"family": "wan-tiny-t2v", "ulysses": 4}
            (await admin.post("/v1/models/register", json=declared)).raise_for_status()
            code = (await admin.post("/v1/session/codes")).json()["code"]
        async with httpx.AsyncClient(base_url=service.url, timeout=30) as browser:
            (await browser.post("/v1/session", json={"code": code})).raise_for_status()
            cookies = browser.cookies
        async with service.client(key) as http:
            done = await _submitted(http, SMALL)
            await _reaches(http, done, "completed")
            share = (await http.post(f"/v1/videos/{done}/shares", json={"expires_in_s": 3600})).json()[
                "token"
            ]
            waiting = await _submitted(http, {**SMALL, "model": "later"})
            under_way = await _submitted(http, LONG)
            await wait_until(lambda: _progress(http, under_way), "the long video to begin", 120)
        return Kept(key, str(gone["token"]), cookies, str(share), done, under_way, waiting)

    async def _check(self, service: Service, kept: Kept) -> None:
        """What every release must show of what the older one made."""
        async with service.client(kept.key) as http:
            content = await http.get(f"/v1/videos/{kept.done}/content")
            assert content.status_code == 200 and content.content[4:8] == b"ftyp"
            assert (await _video(http, kept.waiting))["status"] == "queued"
            refused = await http.get("/v1/models", headers={"Authorization": f"Bearer {kept.revoked}"})
            assert refused.status_code == 401
        async with service.client() as admin:
            later = (await admin.get("/v1/models/later")).raise_for_status().json()
            assert (later["ulysses"], later["runner"]) == (4, "external")
            usage = (await admin.get("/v1/usage", params={"tenant": "acme"})).raise_for_status().json()
            assert usage["total"]["videos"] >= 1, usage["total"]
        async with httpx.AsyncClient(base_url=service.url, timeout=30) as browser:
            shared = await browser.get("/v1/shared/content", headers={"X-Turnout-Share": kept.share})
            assert shared.status_code == 200 and shared.content == content.content
            cookie = "; ".join(f"{c.name}={c.value}" for c in kept.cookies.jar)
            session = await browser.get("/v1/session", headers={"Cookie": cookie})
            assert session.status_code == 200 and session.json()["role"] == "admin"

    async def _upgraded(self, service: Service, kept: Kept) -> None:
        await self._check(service, kept)
        async with service.client(kept.key) as http:
            await _reaches(http, kept.under_way, "completed")
            assert (await _video(http, kept.under_way))["failures"] == 0
            # Under way when this release leaves, so that the older one goes on with what the newer one wrote.
            kept.under_way = await _submitted(http, LONG)
            await wait_until(lambda: _progress(http, kept.under_way), "the long video to begin", 120)
        async with service.client() as admin:  # the older release knows neither people nor invites
            (await admin.post("/v1/invites", json={"tenant": "acme", "role": "user"})).raise_for_status()

    async def _back(self, service: Service, kept: Kept) -> None:
        await self._check(service, kept)
        async with service.client(kept.key) as http:
            await _reaches(http, kept.under_way, "completed")
            (await http.get("/ready")).raise_for_status()

    async def _again(self, service: Service, kept: Kept) -> None:
        await self._check(service, kept)
        async with service.client() as admin:
            invites = (await admin.get("/v1/invites")).raise_for_status().json()["data"]
            assert [invite["tenant"] for invite in invites] == ["acme"]


async def _submitted(http: httpx.AsyncClient, asked: dict[str, Any]) -> str:
    made = await http.post("/v1/videos", json={"prompt": "a red square moving to the right", **asked})
    return str(made.raise_for_status().json()["id"])


async def _video(http: httpx.AsyncClient, video: str) -> dict[str, Any]:
    return (await http.get(f"/v1/videos/{video}")).raise_for_status().json()


async def _progress(http: httpx.AsyncClient, video: str) -> bool:
    return (await _video(http, video))["progress"] >= 3


async def _reaches(http: httpx.AsyncClient, video: str, status: str) -> None:
    async def there() -> bool:
        return (await _video(http, video))["status"] == status

    await wait_until(there, f"{video} to be {status}", 240)
