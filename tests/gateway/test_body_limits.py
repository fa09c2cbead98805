"""How much of a body the gateway reads, keeps and parses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from tests.conftest import Stores
from tests.gateways import Gateway, bearer, chatting, running
from tests.pace import patient
from tests.people.test_guests import Guest

from turnout.gateway.bodies import MAX_JSON_BYTES
from turnout.tenants.key_rules import Role
from turnout.tenants.tenant_settings import GuestSettings

DENSE = b"[" + b"[]," * (4 * 2**20) + b"1]"


async def test_a_body_without_an_upload_is_small(gateway: Gateway) -> None:
    admin = bearer(await gateway.key(role=Role.ADMIN))
    for path in ("/v1/keys", "/v1/models/register", "/workers/w-1/drain"):
        answer = await gateway.http.post(path, content=b" " * (MAX_JSON_BYTES + 1), headers=admin)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large"), path


async def test_a_body_that_is_hard_to_parse_is_refused(gateway: Gateway) -> None:
    answer = await gateway.http.post(
        "/v1/videos", content=DENSE, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_complex")


async def test_a_chat_body_that_is_hard_to_parse_is_refused(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        body = b'{"model":"m","messages":' + DENSE + b"}"
        answer = await http.post("/v1/chat/completions", content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_complex")


def held_body(size: int, more: asyncio.Event) -> tuple[AsyncIterator[bytes], asyncio.Event]:
    """A body that does not end before `more` is set, and an event that tells that it was sent so far."""
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * size
        begun.set()
        await more.wait()

    return pieces(), begun


async def test_large_bodies_are_bounded_in_all_and_for_each_tenant(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path, max_bodies_bytes=400_000) as gateway:
        other = bearer(await gateway.key(tenant="other"))
        more = asyncio.Event()
        body, begun = held_body(150_000, more)
        held = asyncio.create_task(gateway.http.post("/v1/videos", content=body))
        await asyncio.wait_for(begun.wait(), patient(10))

        async def answers(content: bytes, **headers: str) -> tuple[int, str]:
            answer = await gateway.http.post("/v1/videos", content=content, headers=headers)
            assert answer.status_code != 503 or "retry-after" in answer.headers
            return answer.status_code, answer.json()["error"]["code"]

        assert await answers(b"x" * 150_000) == (503, "bodies_full"), "one tenant has half of it at most"
        assert await answers(b"x" * 150_000, **other) == (400, "invalid_json"), "others are heard"
        assert await answers(b"x" * 300_000, **other) == (503, "bodies_full")
        assert (await gateway.http.post("/v1/videos", json={"prompt": "small"})).status_code == 200
        more.set()
        assert (await held).status_code == 400
        assert await answers(b"x" * 150_000) == (400, "invalid_json")


async def test_all_guests_together_have_half_of_the_room_for_bodies(stores: Stores, tmp_path: Path) -> None:
    """Two of them had all of it, and no tenant could send a picture."""
    async with running(stores, tmp_path, max_bodies_bytes=400_000, guests=GuestSettings()) as gateway:
        ann, ben = Guest(gateway), Guest(gateway)
        await ann.come()
        await ben.come()
        more = asyncio.Event()
        body, begun = held_body(150_000, more)
        held = asyncio.create_task(ann.http.post("/v1/videos", content=body))
        await asyncio.wait_for(begun.wait(), patient(10))
        hers = await ben.http.post("/v1/videos", content=b"x" * 150_000)
        assert (hers.status_code, hers.json()["error"]["code"]) == (503, "bodies_full")
        tenants = await gateway.http.post("/v1/videos", content=b"x" * 150_000)
        assert (tenants.status_code, tenants.json()["error"]["code"]) == (400, "invalid_json")
        more.set()
        assert (await held).status_code == 400
