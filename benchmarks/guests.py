"""What a paying tenant notices of 500 guests: how long its videos wait to begin and its chats for their first word, alone and beside them.

    python -m benchmarks.guests [--guests 500] [--rounds 8]

The whole service runs as a user runs it. Each guest comes from an address of her own, asks for as many videos as she may, and some
chat without a pause. Needs no network.
"""

import argparse
import asyncio
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

import httpx

from benchmarks.figures import Table, say
from benchmarks.service import MODEL, Service, whole

_WISH = {"model": MODEL, "prompt": "a red square moving to the right", "seed": 7, "steps": 12}
_CHAT = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "Say hello."}],
    "max_tokens": 16,
    "stream": True,
}
_SETTINGS: dict[str, Any] = {
    "guests": {"videos": 3, "chats": 1000, "address_chats": 1000, "most": 2000},
    "trusted_proxies": "127.0.0.1/32",
    "max_connections_per_address": 4096,
}
_AT_ONCE = 16
_CHATTING = 8


@dataclass(slots=True)
class Waits:
    videos: list[float] = field(default_factory=list[float])
    chats: list[float] = field(default_factory=list[float])


async def measure() -> Table:
    """A tenant's waits alone and beside 500 guests."""
    return await _measure(500, 8)


async def _measure(guests: int, rounds: int) -> Table:
    table = Table(
        f"guests: seconds that a tenant waits, alone and beside {guests} guests",
        ("beside", "n", "video begins, median", "worst", "chat's first word, median", "worst"),
    )
    with tempfile.TemporaryDirectory() as directory:
        async with (
            whole(Path(directory), **_SETTINGS) as service,
            httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=120) as tenant,
        ):
            say("a tenant alone")
            await _round(tenant)  # wakes the models
            alone = await _waits(tenant, rounds)
            say(f"{guests} guests come in")
            async with _Flood(service, guests) as flood:
                say(f"{flood.asked} videos of guests wait")
                beside = await _waits(tenant, rounds)
                left = (await tenant.get("/v1/queues")).json()["data"]
                waiting = sum(row["waiting"] for row in left if row["tenant"].startswith("t-g-"))
    for name, waits in (("nobody", alone), (f"{guests} guests", beside)):
        figures = [round_ for one in (waits.videos, waits.chats) for round_ in (median(one), max(one))]
        table.rows.append((name, rounds, *figures))
    table.notes.append(f"{flood.asked} videos of guests were accepted, {waiting} of them waited at the end.")
    return table


async def _waits(tenant: httpx.AsyncClient, rounds: int) -> Waits:
    waits = Waits()
    for _ in range(rounds):
        video, chat = await _round(tenant)
        waits.videos.append(video)
        waits.chats.append(chat)
    return waits


async def _round(tenant: httpx.AsyncClient) -> tuple[float, float]:
    """The seconds until a video begins, and until a chat's first word; the video has ended then."""
    began = time.monotonic()
    made = (await tenant.post("/v1/videos", json=_WISH)).raise_for_status().json()["id"]
    begun = None
    while True:
        status = (await tenant.get(f"/v1/videos/{made}")).json()["status"]
        if begun is None and status != "queued":
            begun = time.monotonic() - began
        if status not in ("queued", "in_progress"):
            break
        await asyncio.sleep(0.05)
    asked = time.monotonic()
    async with tenant.stream("POST", "/v1/chat/completions", json=_CHAT) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_lines():
            break
    return begun or 0.0, time.monotonic() - asked


class _Flood:
    """Guests who have all asked for what they may when the context begins; some chat until it ends."""

    def __init__(self, service: Service, guests: int) -> None:
        self._service = service
        self._guests = guests
        self._chatting: list[asyncio.Task[None]] = []
        self.asked = 0

    async def __aenter__(self) -> Self:
        few = asyncio.Semaphore(_AT_ONCE)

        async def come(number: int) -> None:
            async with few, self._client(number) as guest:
                (await guest.post("/v1/login/guest", json={})).raise_for_status()
                for _ in range(3):
                    answer = await guest.post("/v1/videos", json=_WISH)
                    self.asked += answer.status_code == 200
                if number < _CHATTING:
                    chat = asyncio.create_task(self._chat(number, guest.cookies), name=f"guest {number}")
                    self._chatting.append(chat)

        await asyncio.gather(*(come(number) for number in range(self._guests)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._chatting:
            task.cancel()
        await asyncio.gather(*self._chatting, return_exceptions=True)

    def _client(self, number: int, cookies: httpx.Cookies | None = None) -> httpx.AsyncClient:
        headers = {
            "origin": self._service.url,
            "x-forwarded-for": f"198.51.{number // 250}.{number % 250 + 1}",
        }
        return httpx.AsyncClient(base_url=self._service.url, headers=headers, cookies=cookies, timeout=120)

    async def _chat(self, number: int, cookies: httpx.Cookies) -> None:
        async with self._client(number, cookies) as guest:
            while True:
                with suppress(httpx.HTTPError):
                    await guest.post("/v1/chat/completions", json=_CHAT | {"stream": False})
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=8)
    said = parser.parse_args()
    print(asyncio.run(_measure(said.guests, said.rounds)).text())
