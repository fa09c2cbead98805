"""Single holes that an audit found, each closed where its rule lives."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.conftest import Stores, wait_until
from tests.fuzz.runner import watched
from tests.gateways import Gateway, bearer, chatting
from tests.relay.test_limits import UPGRADE
from websockets.frames import Close, Frame, Opcode

from turnout.fleet.worker_rules import TUNNEL
from turnout.gateway.middleware import STANDARD_HEADERS
from turnout.tenants.key_rules import Role


@pytest.mark.parametrize("written", ["Bearer  {}", "Bearer {} ", "Bearer \t{}", "Bearer {}\t"])
async def test_a_key_with_blanks_around_it_is_another_key(gateway: Gateway, written: str) -> None:
    headers = {"authorization": written.format(gateway.token)}
    answer = await gateway.http.get("/v1/videos", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_users_do_not_see_where_weights_lie(gateway: Gateway) -> None:
    admin = bearer(await gateway.key(role=Role.ADMIN))
    for path in ("/v1/models", "/v1/models/t2v-big"):
        assert "/weights/t2v" not in (await gateway.http.get(path)).text
        assert "/weights/t2v" in (await gateway.http.get(path, headers=admin)).text
    assert "builtin:wan-tiny-t2v" in (await gateway.http.get("/v1/models")).text


async def test_a_users_key_without_a_tenant_has_one_of_its_own(gateway: Gateway) -> None:
    admin = bearer(await gateway.key(tenant="default", role=Role.ADMIN))
    made = [(await gateway.http.post("/v1/keys", json={}, headers=admin)).json() for _ in range(2)]
    assert len({key["tenant"] for key in made} | {"default"}) == 3
    worker = (await gateway.http.post("/v1/keys", json={"role": "worker"}, headers=admin)).json()
    assert worker["tenant"] == "default"


@pytest.mark.parametrize("guidance", ["[" * 100_000, "[" * 3000 + "]" * 3000, "[1,", "[]", "[[1]]"])
async def test_odd_guidance_is_refused(gateway: Gateway, guidance: str) -> None:
    for ask in (
        gateway.http.post("/v1/videos", json={"prompt": "x", "guidance": guidance}),
        gateway.http.post("/v1/videos", files={"prompt": (None, "x"), "guidance": (None, guidance)}),
    ):
        assert (await ask).status_code == 400


async def test_no_redirect_follows_the_host(gateway: Gateway) -> None:
    answer = await gateway.http.get("/v1/videos/", headers={"host": "evil.example"})
    assert answer.status_code == 404
    assert "evil.example" not in str(answer.headers)


@pytest.mark.parametrize(("busy", "watts"), [("1" + "0" * 400, "1"), ("0", "1e400")])
async def test_a_worker_with_absurd_numbers_breaks_no_scrape(gateway: Gateway, busy: str, watts: str) -> None:
    machine: dict[str, object] = {"cpus": 1, "memory_bytes": 1, "free_memory_bytes": 1, "gpus": []}
    registration = {"name": "w", "url": TUNNEL, "probe_key": "k" * 32, "machine": machine}
    worker = bearer(await gateway.key(role=Role.WORKER))
    known = (await gateway.http.post("/workers/register", json=registration, headers=worker)).json()
    machine["gpus"] = [{"index": 0, "total_bytes": 1, "free_bytes": 1, "power_watts": "WATTS"}]
    beat = {"machine": machine, "replicas": [{"id": "r", "phase": "ready", "busy": "BUSY"}]}
    said = json.dumps(beat).replace('"WATTS"', watts).replace('"BUSY"', busy)
    path = f"/workers/{known['id']}/heartbeat"
    answer = await gateway.http.post(path, content=said, headers=bearer(known["secret"]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")
    assert (await gateway.http.get("/metrics")).status_code == 200


TEXT, BAD_TEXT, CLOSE, UNMASKED = "text", "bad text", "close", "unmasked"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([BAD_TEXT], 1007),
        ([BAD_TEXT, BAD_TEXT], 1007),
        ([BAD_TEXT, CLOSE], 1000),
        ([TEXT, BAD_TEXT], 1007),
        ([TEXT, CLOSE], 1000),
        ([TEXT, UNMASKED], 1002),
        ([TEXT], 4404),
    ],
)
async def test_nothing_that_a_socket_says_is_an_error_in_the_log(
    stores: Stores, tmp_path: Path, said: list[str], code: int
) -> None:
    async with chatting(stores, tmp_path) as chat:
        frames = {
            TEXT: Frame(Opcode.TEXT, json.dumps({"key": chat.gateway.token}).encode()).serialize(mask=True),
            BAD_TEXT: Frame(Opcode.TEXT, b"\xff").serialize(mask=True),
            CLOSE: Frame(Opcode.CLOSE, Close(1000, "").serialize()).serialize(mask=True),
            UNMASKED: Frame(Opcode.TEXT, b"x").serialize(mask=False),
        }
        host, _, port = chat.base.removeprefix("http://").partition(":")
        with watched():
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(UPGRADE % (b"v1/videos/video_1/ws", b""))
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"".join(frames[one] for one in said))  # it has the key and must look for the video
            opcode, length = await reader.readexactly(2)
            assert opcode == 0x80 | Opcode.CLOSE
            assert int.from_bytes((await reader.readexactly(length))[:2]) == code
            writer.transport.abort()
            await wait_until(lambda: "run_asgi" not in repr(asyncio.all_tasks()), "the route has ended")


async def test_a_refused_handshake_is_no_error_in_the_log(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat:
        host, _, port = chat.base.removeprefix("http://").partition(":")
        with watched():
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(UPGRADE % (b"v1/videos/ws", b"Authorization: Bearer wrong\r\n"))
            assert b" 401 " in (await reader.read())[:20]
            writer.close()


CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
REFUSED = {
    "not HTTP": b"GET / HTTP/1.1 what\r\n\r\n",
    "two lengths": CHAT + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "no key": CHAT + b"Content-Length: 2\r\n\r\n{}",
    "no key for much": CHAT + b"Content-Length: 9000000\r\n\r\n",
    "socket without a key": UPGRADE % (b"v1/videos/ws", b"Authorization: Bearer wrong\r\n"),
    "socket at no path": UPGRADE % (b"nowhere", b""),
    "socket of an old version": (UPGRADE % (b"v1/videos/ws", b"")).replace(b"Version: 13", b"Version: 7"),
    "preflight of a stranger": b"OPTIONS /v1/videos HTTP/1.1\r\nHost: x\r\nOrigin: http://e.example\r\n\r\n",
}


@pytest.mark.parametrize("what", REFUSED)
async def test_every_refusal_has_the_standard_headers(stores: Stores, tmp_path: Path, what: str) -> None:
    async with chatting(stores, tmp_path) as chat:
        host, _, port = chat.base.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(REFUSED[what])
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        writer.close()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert status.split()[1][0] == "4", status
    for name, value in STANDARD_HEADERS:
        assert headers[name.decode()] == value.decode(), name


async def test_one_connection_too_many_has_the_standard_headers(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, max_connections_per_address=1) as chat:
        host, _, port = chat.base.removeprefix("http://").partition(":")
        _, first = await asyncio.open_connection(host, int(port))
        reader, second = await asyncio.open_connection(host, int(port))
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 503") and all(b"%b: %b" % one in said for one in STANDARD_HEADERS)
        first.close()
        second.close()
