"""Clients that behave as clients should: they retry a submission with the same Idempotency-Key, reconnect to the events with
Last-Event-ID, and go to the other gateway when one fails."""

import asyncio
import hashlib
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import av
import httpx
from tests.chaos.cluster import MODEL, Cluster

TERMINAL = {"video.completed", "video.failed", "video.cancelled"}
FRAMES = 9


@dataclass
class Watched:
    """What one client saw of its task. `odd` are answers that a client should not get."""

    spec: int
    key: str
    id: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    ended_at: float | None = None
    odd: list[str] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in TERMINAL


class Clients:
    """All clients of one cluster, on both gateways in turn."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turn = 0

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[httpx.AsyncClient]:
        self._turn += 1
        url = self._cluster.urls[self._turn % len(self._cluster.urls)]
        # verify=False: plain HTTP on loopback, and reading the system's certificates takes 30 ms each time.
        async with httpx.AsyncClient(
            base_url=url, headers=self._cluster.headers, timeout=20, follow_redirects=True, verify=False
        ) as client:
            yield client

    async def live_through(self, watched: Watched, limit_s: float = 900) -> None:
        """Submits, then follows the events to the end, whatever happens to the service."""
        deadline = time.monotonic() + limit_s
        while not watched.ended:
            if time.monotonic() > deadline:
                raise TimeoutError(f"task {watched.id or watched.key} did not end in {limit_s:.0f} s")
            try:
                async with self.connected() as client:
                    if watched.id:
                        await follow(client, watched)
                    else:
                        await submit(client, watched)
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
        watched.ended_at = time.monotonic()

    async def story(self, video: str) -> list[dict[str, Any]]:
        """The task's events, as a client that comes late is told them."""
        fresh = Watched(0, "", video)
        async with self.connected() as client:
            await follow(client, fresh)
        return fresh.events

    async def download(self, video: str) -> bytes:
        async with self.connected() as client:
            answer = await client.get(f"/v1/videos/{video}/content")
            answer.raise_for_status()
            return answer.content

    async def ids(self) -> list[str]:
        """All tasks that the service has."""
        found: list[str] = []
        async with self.connected() as client:
            while True:
                params = {"limit": "100", **({"after": found[-1]} if found else {})}
                page = (await client.get("/v1/videos", params=params)).raise_for_status().json()
                found += [video["id"] for video in page["data"]]
                if not page["has_more"]:
                    return found

    async def usage(self) -> dict[str, Any]:
        """What the tenant is to pay for; a clock that is off may count some for the next day."""
        days = [time.strftime("%Y-%m-%d", time.gmtime(time.time() + n * 86_400)) for n in (-1, 1)]
        async with self.connected() as client:
            answer = await client.get("/v1/usage", params={"start": days[0], "end": days[1]})
            return answer.raise_for_status().json()

    async def something_is_denoised(self) -> bool:
        try:
            async with self.connected() as client:
                found = await client.get("/v1/videos", params={"limit": 100})
                return any(
                    v["status"] == "in_progress" and v.get("stage") == "denoising"
                    for v in found.json()["data"]
                )
        except (httpx.HTTPError, KeyError, ValueError):
            return False


async def submit(client: httpx.AsyncClient, watched: Watched) -> None:
    body = {
        "prompt": f"a ball number {watched.spec}",
        "seed": watched.spec,
        "size": "64x64",
        "frames": FRAMES,
        "steps": 12,
        "model": MODEL,
    }
    answer = await client.post("/v1/videos", json=body, headers={"Idempotency-Key": watched.key})
    if answer.status_code == 200:
        watched.id = answer.json()["id"]
        return
    if answer.status_code != 503:
        watched.odd.append(f"submission: {answer.status_code} {answer.text[:300]}")
    await asyncio.sleep(0.3)


async def follow(client: httpx.AsyncClient, watched: Watched) -> None:
    headers = {"Last-Event-ID": watched.events[-1]["id"]} if watched.events else {}
    async with client.stream("GET", f"/v1/videos/{watched.id}/events", headers=headers) as answer:
        if answer.status_code != 200:
            if answer.status_code != 503:
                watched.odd.append(f"events: {answer.status_code} {(await answer.aread())[:300]!r}")
            await asyncio.sleep(0.3)
            return
        watched.connections += 1
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                event = json.loads(line.removeprefix("data:"))
                if event["type"] != "video.waiting":  # a note: sent once, in no story
                    watched.events.append(event)


def frames_in(data: bytes) -> int:
    with av.open(io.BytesIO(data), "r") as container:
        return sum(1 for _ in container.decode(video=0))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
