"""A mixed load, for as long as it is asked for: videos that are followed, cancelled, shared and deleted, chats that are hung up, watchers,
keys that come and go. It bears with a service whose parts die, and says what should not have been answered."""

import asyncio
import contextlib
import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from PIL import Image
from tests.service import Service
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

SIZES = ("64x64", "96x64", "128x128")
_REST_S = 0.5
_CHAT = {"model": "smollm2", "max_tokens": 24}


@dataclass
class Done:
    """`odd`: answers that a client should not get, the first few of each kind."""

    counts: Counter[str] = field(default_factory=Counter)
    odd: dict[str, int] = field(default_factory=dict[str, int])

    def found(self, what: str) -> None:
        self.odd[what] = self.odd.get(what, 0) + 1


class Load:
    """Everybody pauses while `quiet` is set, so that models go to sleep."""

    def __init__(self, service: Service, seed: int) -> None:
        self._service = service
        self._chance = random.Random(seed)
        self._tokens = [service.key_of(f"soak-{n}") for n in range(3)]
        self.done = Done()
        self.quiet = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            for name, one, every_s in (
                ("videos", self._video, 6),
                ("more videos", self._video, 6),
                ("chats", self._chat, 3),
                ("more chats", self._chat, 3),
                ("keys", self._key, 2),
                ("looks", self._look, 3),
                ("sockets", self._watch, 1),
            ):
                group.create_task(self._repeat(one, every_s), name=name)
            await asyncio.sleep(seconds)
            self._over.set()

    async def _repeat(self, one: Callable[[httpx.AsyncClient, int], Awaitable[None]], every_s: float) -> None:
        """At a pace: what the service keeps for a while must not tell how fast the machine was of late."""
        clock = asyncio.get_running_loop().time
        for number in itertools.count():
            if self._over.is_set():
                return
            next_at = clock() + every_s
            token = self._tokens[number % len(self._tokens)]
            try:
                async with asyncio.timeout(300), self._service.client(token) as http:
                    await one(http, number)
            except TimeoutError:
                self.done.found(f"{one.__name__} took 300 s")
            except (httpx.HTTPError, OSError, WebSocketException):
                self.done.counts["connections lost"] += 1
            await asyncio.sleep(max(_REST_S, next_at - clock()))
            while self.quiet.is_set() and not self._over.is_set():
                await asyncio.sleep(_REST_S)

    def _taken(self, answer: httpx.Response, what: str) -> bool:
        """503 is what a client is told while a part is away; it comes again."""
        if answer.status_code >= 400 and answer.status_code != 503:
            self.done.found(f"{what}: {answer.status_code} {answer.text[:120]}")
        return answer.status_code < 400

    async def _video(self, http: httpx.AsyncClient, number: int) -> None:
        chance = self._chance
        asked: dict[str, Any] = {
            "prompt": f"a red ball number {number}",
            "seed": number,
            "size": chance.choice(SIZES),
            "frames": chance.choice((5, 9, 13)),
            "steps": chance.choice((2, 6, 10)),
            "model": "wan-tiny-ti2v" if number % 3 == 0 else "wan-tiny-t2v",
        }
        if number % 3 == 0:
            picture = {"input_reference": ("p.png", _picture(), "image/png")}
            made = await http.post("/v1/videos", data=asked, files=picture)
        else:
            made = await http.post("/v1/videos", json=asked)
        if not self._taken(made, "submission"):
            return
        video = made.json()["id"]
        fate = chance.choice(("finish", "finish", "finish", "cancel", "delete", "share"))
        await self._follow(http, video, 3 if fate == "cancel" else None)
        if fate == "cancel":
            self._taken(await http.post(f"/v1/videos/{video}/cancel"), "cancel")
        elif fate == "share":
            self._taken(await http.post(f"/v1/videos/{video}/shares", json={}), "share")
        content = await http.get(f"/v1/videos/{video}/content", follow_redirects=True)
        self.done.counts[f"videos, {fate}"] += 1
        self.done.counts["MiB downloaded"] += len(content.content) // 2**20
        if fate == "delete":
            self._taken(await http.delete(f"/v1/videos/{video}"), "delete")

    async def _follow(self, http: httpx.AsyncClient, video: str, events: int | None) -> None:
        last = ""
        while True:
            headers = {"Last-Event-ID": last} if last else {}
            with contextlib.suppress(httpx.HTTPError):
                async with http.stream("GET", f"/v1/videos/{video}/events", headers=headers) as answer:
                    async for line in answer.aiter_lines():
                        if not line.startswith("data:"):
                            continue
                        event = json.loads(line.removeprefix("data:"))
                        last = event.get("id", last)  # a note on waiting has none
                        self.done.counts["events"] += 1
                        if events is not None:
                            events -= 1
                        if events == 0 or event["type"] in ("video.completed", "video.cancelled"):
                            return
                        if event["type"] == "video.failed":
                            return self.done.found(f"video failed: {event}")
            await asyncio.sleep(_REST_S)

    async def _chat(self, http: httpx.AsyncClient, number: int) -> None:
        messages = [{"role": "user", "content": f"Tell story {number}."}]
        if number % 3 == 0:
            answer = await http.post("/v1/chat/completions", json={**_CHAT, "messages": messages})
            if answer.status_code != 200:
                self.done.found(f"chat: {answer.status_code} {answer.text[:120]}")
            self.done.counts["chats, plain"] += 1
            return
        body = {**_CHAT, "messages": messages, "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                return self.done.found(f"chat: {answer.status_code} {(await answer.aread())[:120]!r}")
            async for _ in answer.aiter_lines():
                if number % 3 == 1 and self._chance.random() < 0.1:
                    self.done.counts["chats, hung up"] += 1
                    return
        self.done.counts["chats, streamed"] += 1

    async def _key(self, http: httpx.AsyncClient, number: int) -> None:
        """One that is made, used and revoked, with a session of its own."""
        admin = self._service.headers
        made = await http.post("/v1/keys", json={"tenant": f"once-{number % 20}"}, headers=admin)
        if not self._taken(made, "new key"):
            return
        own = {"Authorization": f"Bearer {made.json()['token']}"}
        self._taken(await http.get("/v1/videos", headers=own), "list")
        self._taken(await http.delete(f"/v1/keys/{made.json()['id']}", headers=admin), "revocation")
        self.done.counts["keys"] += 1

    async def _look(self, http: httpx.AsyncClient, number: int) -> None:
        admin = self._service.headers
        for path in (
            "/",
            "/metrics",
            "/v1/models",
            "/v1/usage",
            "/workers",
            "/v1/videos?limit=100",
            "/v1/audit",
        ):
            self._taken(await http.get(path, headers=admin), path)
        self.done.counts["looks"] += 7

    async def _watch(self, http: httpx.AsyncClient, number: int) -> None:
        """Listens for a while, as the page does."""
        url = f"{self._service.url.replace('http', 'ws', 1)}/v1/videos/ws"
        header = {"Authorization": http.headers["Authorization"]}
        async with connect(url, additional_headers=header, open_timeout=30) as socket:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(1, 30)):
                    async for _ in socket:
                        self.done.counts["events"] += 1
        self.done.counts["sockets"] += 1


def _picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (96, 64), (200, 30, 30)).save(out, "PNG")
    return out.getvalue()
