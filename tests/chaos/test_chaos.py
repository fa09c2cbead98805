"""Kills every kind of process at random moments while tasks are rendered, and counts what was lost: nothing.

The clients behave as clients should: they retry a submission with the same Idempotency-Key, and reconnect to
the events with Last-Event-ID.
"""

import asyncio
import hashlib
import io
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import httpx
import psutil
import pytest
from tests.conftest import wait_until
from tests.service import Service, running_service

TASKS = 60
FAULTS = (
    "rank",
    "gateway",
    "redis",
    "gang",
    "rank",
    "worker",
    "stall",
    "redis",
    "rank",
    "gateway",
    "gang",
    "worker",
)
TERMINAL = {"video.completed", "video.failed", "video.cancelled"}
SETTINGS = {
    "lease_s": 8.0,
    "stall_s": 8.0,
    "max_attempts": 8,
    "checkpoint_steps": 3,
    "checkpoint_s": 5.0,
    "limit_submits_per_minute": 10_000,
    "limit_waiting": 1_000,
}


@dataclass
class Watched:
    """What one client saw of its task."""

    prompt: str
    seed: int
    id: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0


@pytest.mark.timeout(900)
async def test_nothing_is_lost_whatever_is_killed(tmp_path: Path, figures: Any) -> None:
    chance = random.Random(20260)
    began = time.monotonic()
    async with running_service(tmp_path, **SETTINGS) as service:
        watched = [Watched(f"a ball number {n}", n) for n in range(TASKS)]
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            chaos = group.create_task(cause_faults(service, chance, watched, done))
            clients = [group.create_task(live_through(service, w)) for w in watched]
            await asyncio.gather(*clients)
            done.set()
            faults = await chaos
        stories = [await story(service, w.id) for w in watched]
        for seen, truth in zip(watched, stories, strict=True):
            assert [e["id"] for e in seen.events] == [e["id"] for e in truth], "every event once, in order"
            assert sum(e["type"] in TERMINAL for e in truth) == 1
            assert truth[-1]["type"] in TERMINAL
        requeued = sum(e["type"] == "video.requeued" for truth in stories for e in truth)
        resumed = [
            w
            for w, truth in zip(watched, stories, strict=True)
            if any(e["type"] == "video.requeued" for e in truth)
        ]
        outcomes = Counter(w.events[-1]["type"] for w in watched)
        assert outcomes == {"video.completed": TASKS}
        videos = {w.id: await download(service, w.id) for w in watched}
        for data in videos.values():
            assert frames_in(data) == 9
        compared = resumed[:8]
        for w in compared:
            again = Watched(w.prompt, w.seed)
            await live_through(service, again, key="undisturbed")
            assert digest(await download(service, again.id)) == digest(videos[w.id])
        assert await objects_named(service, "checkpoint") == []
    figures(
        f"chaos: {TASKS} tasks, {sum(faults.values())} faults ({', '.join(f'{k} ×{n}' for k, n in faults.items())}) "
        f"in {time.monotonic() - began:.0f} s: {outcomes['video.completed']} completed, 0 lost, "
        f"{requeued} attempts died, {len(resumed)} tasks took more than one, {len(compared)} of these compared byte for byte with an "
        f"undisturbed run: all equal; {sum(w.connections for w in watched)} event connections, "
        f"{sum(len(w.events) for w in watched)} events, none twice, none out of order"
    )


async def cause_faults(
    service: Service, chance: random.Random, watched: list[Watched], done: asyncio.Event
) -> Counter[str]:
    """One fault after another, each at a random moment once tasks come to an end again."""

    def ended() -> int:
        return sum(bool(w.events) and w.events[-1]["type"] in TERMINAL for w in watched)

    caused: Counter[str] = Counter()
    for fault in FAULTS:
        role = "rank" if fault == "stall" else fault
        await wait_until(lambda role=role: bool(service.parts(role)) or done.is_set(), f"a {role} to hit", 90)
        if role in ("rank", "gang", "worker"):
            await wait_until(lambda: something_runs(service, done), "a task to be denoised", 90)
        if done.is_set():
            break
        await asyncio.sleep(chance.uniform(0, 0.2))
        victims = service.parts(role)
        if not victims:
            continue
        victim = chance.choice(victims)
        try:
            victim.suspend() if fault == "stall" else victim.kill()
            caused[fault] += 1
        except psutil.NoSuchProcess:
            continue
        before = ended()
        await wait_until(lambda before=before: ended() >= before + 2 or done.is_set(), "tasks to end", 120)
    return caused


async def something_runs(service: Service, done: asyncio.Event) -> bool:
    if done.is_set():
        return True
    try:
        async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=5) as client:
            found = await client.get("/v1/videos", params={"limit": 100})
            return any(
                v["status"] == "in_progress" and v.get("stage") == "denoising" for v in found.json()["data"]
            )
    except (httpx.HTTPError, KeyError, ValueError):
        return False


async def live_through(service: Service, watched: Watched, key: str = "chaos") -> None:
    """Submits, then follows the events to the end, whatever happens to the server."""
    body = {
        "prompt": watched.prompt,
        "seed": watched.seed,
        "size": "64x64",
        "frames": 9,
        "steps": 12,
        "model": "wan-tiny-t2v",
    }
    deadline = time.monotonic() + 600
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client:
        while not watched.id:
            assert time.monotonic() < deadline
            try:
                answer = await client.post(
                    "/v1/videos", json=body, headers={"Idempotency-Key": f"{key}-{watched.seed}"}
                )
            except httpx.HTTPError:
                continue
            if answer.status_code == 503:
                await asyncio.sleep(0.2)
                continue
            assert answer.status_code == 200, answer.text
            watched.id = answer.json()["id"]
        while not (watched.events and watched.events[-1]["type"] in TERMINAL):
            assert time.monotonic() < deadline, watched
            try:
                await follow(client, watched)
            except httpx.HTTPError:
                await asyncio.sleep(0.1)


async def follow(client: httpx.AsyncClient, watched: Watched) -> None:
    headers = {"Last-Event-ID": watched.events[-1]["id"]} if watched.events else {}
    async with client.stream("GET", f"/v1/videos/{watched.id}/events", headers=headers) as answer:
        if answer.status_code != 200:
            await asyncio.sleep(0.2)
            return
        watched.connections += 1
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                watched.events.append(json.loads(line.removeprefix("data:")))


async def story(service: Service, video: str) -> list[dict[str, Any]]:
    fresh = Watched("", 0, video)
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client:
        await follow(client, fresh)
    return fresh.events


async def download(service: Service, video: str) -> bytes:
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=20) as client:
        answer = await client.get(f"/v1/videos/{video}/content")
        assert answer.status_code == 200, answer.text
        return answer.content


async def objects_named(service: Service, word: str) -> list[Path]:
    return [p for p in (service.state_dir / "objects").rglob("*") if word in p.name]


def frames_in(data: bytes) -> int:
    with av.open(io.BytesIO(data), "r") as container:
        return sum(1 for _ in container.decode(video=0))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
