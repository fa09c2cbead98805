"""The probes, one function for each area of the table. Each says to the account what it tried and whether it held."""

import asyncio
import io
import json
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

from tests.audit.scene import PATIENCE_S, Scene, Site, site
from tests.conftest import wait_until
from tests.gateways import bearer
from tests.relay.test_limits import PING, TEXT, UPGRADE, frames
from tests.relay.test_refusals import SMUGGLING
from tests.tasks.test_image_pool import scans
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from turnout.gateway.middleware import STANDARD_HEADERS

CHAT = "/v1/chat/completions"
T2V, TI2V = "waits-t2v", "waits-ti2v"


def ask(content: str, **more: Any) -> dict[str, Any]:
    return {"model": "rogue", "messages": [{"role": "user", "content": content}], **more}


async def framing(scene: Scene) -> None:
    for name, (status, sent) in SMUGGLING.items():
        for path in (b"/v1/chat/completions", b"/v1/videos"):
            if path == b"/v1/videos" and name == "an upgrade without Connection":
                continue  # which the app may ignore; the relay has no use for it
            found, said = await scene.raw(sent.replace(b"/v1/chat/completions", path))
            held = found == status and said.count(b"HTTP/1.1 ") == 1
            scene.account.say("framing", f"{name} at {path.decode()}", held, said[:200])


ROGUE_HEADERS = (
    *("Set-Cookie: turnout_session=thief", "Location: /workers/w-1/drain", "Refresh: 0; url=//evil.example"),
    *("Clear-Site-Data: *", "Strict-Transport-Security: max-age=9", "Alt-Svc: h3", "Link: <//evil.example>"),
    *(
        "Access-Control-Allow-Origin: *",
        "Content-Security-Policy: default-src *",
        "X-Frame-Options: ALLOWALL",
    ),
    *("X-Turnout-Budget: 0", "X-RateLimit-Limit-Requests: 1", "WWW-Authenticate: Basic", "Server: evil"),
    *(
        "Cache-Control: public",
        "Referrer-Policy: unsafe-url",
        "X-Content-Type-Options: sniff",
        "SourceMap: /x",
    ),
)


async def headers_of_engines(scene: Scene) -> None:
    area = "headers of engines"
    async with scene.client(scene.service.key_of()) as http:
        for header in ROGUE_HEADERS:
            name, _, value = header.partition(": ")
            answer = await http.post(CHAT, json=ask(f"header {header}"))
            held = answer.status_code == 200 and value not in answer.headers.get_list(name)
            scene.account.say(area, header, held, answer.headers)
        # A status that no engine has a reason for counts as a broken replica, and the request waits for another one.
        odd = (201, 204, 206, 301, 302, 303, 307, 308, 600, 799, 999)
        asked = [http.post(CHAT, json=ask(f"status {status}"), timeout=180) for status in odd]
        for status, answer in zip(odd, await asyncio.gather(*asked), strict=True):
            held = 400 <= answer.status_code < 600
            scene.account.say(area, f"status {status}", held, answer.status_code)


OPEN = (
    *("/health", "/ready", "/metrics", "/v1/shared", "/v1/shared/content", "/v1/session"),
    *("/v1/login", "/v1/login/oidc", "/v1/login/oidc/callback", "/v1/site", "/v1/site/terms"),
)
USERS = (
    *("/v1/videos", "/v1/images", "/v1/prompts", "/generate", "/v1/conversations", "/v1/presets"),
    *("/v1/usage", "/v1/webhooks/secret", "/v1/session/codes", "/v1/account"),
)
READ_BY_USERS = (
    *(
        "/v1/queues",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/models/{name}/estimate",
        "/v1/budgets",
        "/v1/history",
    ),
)


def may(who: str, method: str, path: str) -> bool:
    """Whether the call may be let in: what is not here may be called by admins alone."""
    if path in OPEN:
        return True
    if who == "user":
        return path.startswith(USERS) or (method == "GET" and path in READ_BY_USERS)
    return who == "worker" and (method, path) in (("POST", "/workers/register"), ("POST", "/v1/gangs"))


async def roles_and_calls(scene: Scene) -> None:
    service, area = scene.service, "roles and stolen credentials × calls"
    revoked = service.key_of()
    await scene.revoke(revoked)
    user = service.key_of()
    tokens = {
        "nobody": "",
        "wrong": "tk-nobody.nothing",
        "user": user,
        "worker": service.key_of(role="worker"),
    }
    tokens |= {"metrics": service.key_of(role="metrics"), "revoked": revoked, "forged": "eyJhIjoxfQ.AAAA"}
    tokens |= {
        "worker's secret": scene.worker_secret(),
        "half": user[:-4],
        "another's id": f"tk-0.{user[-40:]}",
    }
    async with scene.client(service.api_key) as http:
        paths: dict[str, dict[str, Any]] = (await http.get("/openapi.json")).json()["paths"]
    for who, token in tokens.items():
        async with scene.client(token) as http:
            for path, methods in paths.items():
                for method in map(str.upper, methods):
                    called = path.replace("{", "x-").replace("}", "")
                    if path in OPEN or may(who, method, path):
                        continue
                    answer = await http.request(
                        method, called, json=None if method in ("GET", "HEAD") else {}
                    )
                    held = answer.status_code in (401, 403, 429)
                    scene.account.say(area, f"{who}: {method} {path}", held, answer.text)


async def another_origin(scene: Scene) -> None:
    page = await scene.session(scene.service.key_of(role="admin"))
    elsewhere = ("https://evil.example", "null", scene.service.url.rpartition(":")[0] + ":1")
    for origin in elsewhere:
        for more in ({"origin": origin}, {"origin": origin, "sec-fetch-site": "cross-site"}):
            async with scene.client(headers={**page, **more}) as http:
                for method, path in (("POST", "/v1/keys"), ("POST", "/v1/videos"), ("POST", CHAT)):
                    answer = await http.request(method, path, json=ask("hello"))
                    held = answer.status_code in (401, 403)
                    scene.account.say("another origin", f"{origin} {method} {path}", held, answer.text)
    async with scene.client(headers=page) as http:
        mine = await http.get("/v1/keys")
    scene.account.say("another origin", "our own page may", mine.status_code == 200, mine.text)


async def _ended(stream: AsyncIterator[Any]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for _ in stream:
                pass
        return True
    except ConnectionClosed:
        return True
    except TimeoutError:
        return False


async def revocation(scene: Scene) -> None:
    service, area = scene.service, "revocation by every way in"
    socket_url = service.url.replace("http", "ws")
    for way in ("key", "session"):
        for what in ("chat stream", "events", "all events' socket", "one video's socket"):
            token = service.key_of(role="admin")
            headers = bearer(token) if way == "key" else await scene.session(token)
            async with scene.client(headers=headers) as http:
                video = (await http.post("/v1/videos", json={"prompt": "a ball", "model": T2V})).json()["id"]
                if what == "chat stream":
                    opening = http.stream("POST", CHAT, json=ask("stream", stream=True))
                elif what == "events":
                    opening = http.stream("GET", f"/v1/videos/{video}/events")
                else:
                    path = "ws" if what.startswith("all") else f"{video}/ws"
                    async with connect(
                        f"{socket_url}/v1/videos/{path}", additional_headers=headers
                    ) as socket:
                        await socket.recv()
                        await scene.revoke(token)
                        scene.account.say(area, f"{way}: {what}", await _ended(aiter(socket)))
                    continue
                async with opening as answer:
                    lines = answer.aiter_lines()
                    await anext(lines)
                    await scene.revoke(token)
                    scene.account.say(area, f"{way}: {what}", await _ended(lines))
                refused = await http.get("/v1/videos")
                scene.account.say(
                    area, f"{way}: a new request", refused.status_code in (401, 403, 429), refused.text
                )


async def outbound_fairness(scene: Scene) -> None:
    async with site() as outside:
        await _slow_pictures(scene, outside)
        await _slow_webhooks(scene, outside)


async def _slow_pictures(scene: Scene, outside: Site) -> None:
    fields = {"prompt": "a ball", "model": TI2V}
    async with scene.client(scene.service.key_of()) as slow, scene.client(scene.service.key_of()) as other:
        body = {**fields, "image_url": f"{outside.url}/silent"}
        asked = [asyncio.create_task(slow.post("/v1/videos", json=body)) for _ in range(24)]
        await wait_until(lambda: len(outside.asked) >= 4, "the slow pictures are asked for")
        answer = await other.post("/v1/videos", json={**fields, "image_url": f"{outside.url}/picture"})
        held = answer.status_code == 200 and not any(one.done() for one in asked)
        scene.account.say("outbound fairness", "24 pictures that never end", held, answer.text)
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _slow_webhooks(scene: Scene, outside: Site) -> None:
    async def cancelled(token: str, hook: str) -> None:
        async with scene.client(token) as http:
            body = {"prompt": "a ball", "model": T2V, "webhook_url": f"{outside.url}/{hook}"}
            video = (await http.post("/v1/videos", json=body)).raise_for_status().json()["id"]
            (await http.post(f"/v1/videos/{video}/cancel")).raise_for_status()

    slow, before = scene.service.key_of(), len(outside.asked)
    for _ in range(40):
        await cancelled(slow, "silent-hook")
    await wait_until(lambda: len(outside.asked) > before, "the first slow webhook")
    await cancelled(scene.service.key_of(), "hook")
    try:
        async with asyncio.timeout(PATIENCE_S):
            await wait_until(lambda: "/hook" in outside.asked, "the other's webhook", 60)
        held = True
    except TimeoutError:
        held = False
    scene.account.say("outbound fairness", "40 webhooks that never answer", held, outside.asked[-5:])


def _huge_png() -> bytes:
    """60,000 × 60,000 pixels in a few hundred bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack("!IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(100_000))) + chunk(b"IEND", b"")


async def bombs(scene: Scene) -> None:
    area, key = "bombs", scene.service.key_of()
    bodies = {
        "deep lists": b"[" * 200_000,
        "many objects": b"[" + b'{"a":1},' * 200_000 + b"{}]",
        "a long number": b'{"model": ' + b"9" * 1_000_000 + b"}",
        "many keys": json.dumps({f"k{n}": n for n in range(200_000)}).encode(),
    }
    async with scene.client(key) as http:
        for name, body in bodies.items():
            for path in (CHAT, "/v1/videos"):
                answer = await http.post(path, content=body, headers={"content-type": "application/json"})
                held = 400 <= answer.status_code < 500 and await scene.alive()
                scene.account.say(area, f"{name} at {path}", held, answer.text)
        for name, data in {"a huge PNG": _huge_png(), "a JPEG of 400 scans": scans(400)}.items():
            files = {"input_reference": ("x", io.BytesIO(data), "image/png")}
            answer = await http.post("/v1/videos", data={"prompt": "a ball", "model": TI2V}, files=files)
            held = 400 <= answer.status_code < 500 and await scene.alive()
            scene.account.say(area, name, held, answer.text)
    for name, sent in {
        "an endless head": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 50_000,
        "an endless URL": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        "60,000 pings": UPGRADE % (b"v1/videos/ws", b"") + frames(PING, 60_000),
        "60,000 empty messages": UPGRADE % (b"v1/videos/ws", b"") + frames(TEXT, 60_000),
    }.items():
        status, said = await scene.raw(sent)
        scene.account.say(
            area, name, (400 <= status < 500 or status == 101) and await scene.alive(), said[:200]
        )


async def headers_of_refusals(scene: Scene) -> None:
    for name, sent in {
        "not HTTP": b"what\r\n\r\n",
        "no key": b"GET /v1/videos HTTP/1.1\r\nHost: x\r\n\r\n",
        "no key for chat": b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        "no such path": b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
        "a refused socket": UPGRADE % (b"v1/videos/ws", b"Authorization: Bearer wrong\r\n"),
    }.items():
        _, said = await scene.raw(sent)
        lines = said.lower().split(b"\r\n")
        missing = [one for one, value in STANDARD_HEADERS if b"%b: %b" % (one, value.lower()) not in lines]
        scene.account.say("headers of refusals", name, not missing, missing)


AREAS = (
    *(framing, headers_of_engines, headers_of_refusals, roles_and_calls, another_origin),
    *(revocation, outbound_fairness, bombs),
)
