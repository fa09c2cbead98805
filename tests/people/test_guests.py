"""Guests: they come in without an account, see nothing of each other, may ask for little, and change nothing for anybody else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.chat.test_chat_limits import ASK, PATH, at_once
from tests.conftest import Stores
from tests.gateways import Chat, Gateway, bearer, chatting, running
from tests.people.test_people import Visit, admin_of, refused
from tests.tenants.test_session_routes import THEIRS

from turnout.people.belongings import erase_guests
from turnout.tasks.task_rules import Priority
from turnout.tenants.allowance_rules import A_GUESTS_WAYS_IN
from turnout.tenants.tenant_settings import GuestSettings

BALL = {"prompt": "a ball"}
SETTINGS = GuestSettings(
    videos=2, chats=2, address_videos=3, address_chats=3, address_guests=5, most=6, stays_s=3600
)


class Guest(Visit):
    """Somebody at a network address of her own."""

    def __init__(self, gateway: Gateway, address: str = "203.0.113.7") -> None:
        super().__init__(gateway)
        transport = httpx.ASGITransport(gateway.app, raise_app_exceptions=False, client=(address, 1))
        headers = {"origin": "http://gateway"}
        self.http = httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)

    async def come(self) -> dict[str, Any]:
        answer = await self.http.post("/v1/login/guest", json={})
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def open_to_guests(
    stores: Stores, tmp_path: Path, settings: GuestSettings = SETTINGS
) -> AsyncIterator[Gateway]:
    async with running(stores, tmp_path, guests=settings) as made:
        yield made


@pytest.fixture
async def open_gateway(stores: Stores, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with open_to_guests(stores, tmp_path) as made:
        yield made


async def test_guests_are_let_in_only_where_the_operator_says_so(gateway: Gateway) -> None:
    assert (await gateway.http.get("/v1/login")).json()["guests"] is None
    answer = await Visit(gateway).http.post("/v1/login/guest", json={})
    assert refused(answer) == (404, "no_guests") and "set-cookie" not in answer.headers


async def test_a_guest_comes_in_and_sees_nothing_of_another(open_gateway: Gateway) -> None:
    gateway = open_gateway
    offer = (await gateway.http.get("/v1/login")).json()["guests"]
    assert offer == {"videos": 2, "chats": 2, "stays_s": 3600}
    ann, ben = Guest(gateway), Guest(gateway)
    shown, other = await ann.come(), await ben.come()
    assert shown["role"] == "user" and shown["person"] != other["person"]
    assert 3590 < shown["expires_at"] - time.time() <= 3600
    made = (await ann.http.post("/v1/videos", json=BALL, headers={"x-turnout-priority": "high"})).json()
    task = await gateway.task(made["id"])
    assert (task.priority, task.tenant, task.person) == (
        Priority.GUEST,
        f"t-{shown['person']}",
        shown["person"],
    )
    assert (await ben.http.get("/v1/videos")).json()["data"] == []
    assert (await ben.http.get(f"/v1/videos/{made['id']}")).status_code == 404
    account = (await ann.http.get("/v1/account")).json()
    assert account["person"]["way"] == "guest" and account["videos_today"] == {"asked": 1, "most": 2}
    admin = await admin_of(gateway)
    people = (await gateway.http.get("/v1/people", headers=admin)).json()
    assert (people["data"], people["guests"]) == ([], 2)
    disabled = await gateway.http.patch(
        f"/v1/people/{shown['person']}", json={"disabled": True}, headers=admin
    )
    assert disabled.json()["disabled"] and (await ann.http.get("/v1/videos")).status_code == 401


async def test_what_is_not_for_guests_is_refused(open_gateway: Gateway) -> None:
    ann = Guest(open_gateway)
    await ann.come()
    for method, path, body in (
        ("POST", "/v1/account/keys", {}),
        ("POST", "/v1/videos", {**BALL, "webhook_url": "https://example.com/"}),
        ("POST", "/v1/webhooks/secret", {}),
    ):
        assert refused(await ann.http.request(method, path, json=body)) == (403, "guest_refused"), path
    for path in ("/v1/people", "/v1/audit", "/v1/keys", "/workers"):
        assert (await ann.http.get(path)).status_code == 403, path
    ordinary = {"x-turnout-priority": "guest", **bearer(open_gateway.token)}
    assert refused(await ann.http.post("/v1/videos", json=BALL, headers=ordinary))[0] == 400, (
        "nobody else is made one"
    )


async def test_guests_are_bounded_each_by_address_and_in_number(open_gateway: Gateway) -> None:
    gateway = open_gateway
    here = [Guest(gateway) for _ in range(6)]
    came = [await one.http.post("/v1/login/guest", json={}) for one in here]
    assert [one.status_code for one in came] == [200] * 5 + [429]
    assert refused(came[5]) == (429, "daily_limit"), "five from one address in a day"
    asked = [
        (await one.http.post("/v1/videos", json=BALL)).status_code
        for one in (here[0], here[0], here[0], here[1], here[1])
    ]
    assert asked == [200, 200, 429, 200, 429], "two each, three from one address"
    elsewhere = [Guest(gateway, f"2001:db8:1::{n}") for n in range(2)]
    assert (await elsewhere[0].come())["person"]
    full = await elsewhere[1].http.post("/v1/login/guest", json={})
    assert refused(full) == (429, "too_many_guests") and int(full.headers["retry-after"]) > 0
    assert (await elsewhere[0].http.post("/v1/videos", json=BALL)).status_code == 200
    for body, headers, status in (({"name": "x"}, {}, 400), ({}, THEIRS, 403)):
        answer = await elsewhere[1].http.post("/v1/login/guest", json=body, headers=headers)
        assert answer.status_code == status and "set-cookie" not in answer.headers


async def test_nobody_fills_the_audit_log_or_redis_with_ways_in(open_gateway: Gateway) -> None:
    """It has room for so many entries: one guest who logged in again and again pushed out what admins did."""
    ann = Guest(open_gateway)
    await ann.come()
    code = await ann.http.post("/v1/session/codes")
    for _ in range(A_GUESTS_WAYS_IN):
        if code.status_code == 200:
            await ann.http.post("/v1/session", json={"code": code.json()["code"]})
            code = await ann.http.post("/v1/session/codes")
    assert refused(code) == (429, "daily_limit")
    opened = (await ann.http.get("/v1/account/sessions")).json()["data"]
    assert len(opened) <= A_GUESTS_WAYS_IN
    admin = await admin_of(open_gateway)
    entries = (await open_gateway.http.get("/v1/audit", headers=admin)).json()["data"]
    assert len(entries) <= A_GUESTS_WAYS_IN
    person = (await ann.http.get("/v1/session")).json()["person"]
    for _ in range(3):
        gone = await ann.http.delete(f"/v1/account/keys/{person}-deadbeef")
        assert refused(gone) == (404, "key_not_found")
    after = (await open_gateway.http.get("/v1/audit", headers=admin)).json()["data"]
    assert len(after) == len(entries), "what never was is not revoked"
    assert (await ann.http.delete("/v1/account/sessions")).json()["ended"] == len(opened) - 1, "ends may come"


async def test_all_of_a_guest_is_gone_when_her_time_is_over(open_gateway: Gateway) -> None:
    gateway, stores = open_gateway, open_gateway.stores
    ann, ben = Guest(gateway), Guest(gateway)
    hers, his = (await ann.come())["person"], (await ben.come())["person"]
    done, waits = [(await ann.http.post("/v1/videos", json=BALL)).json()["id"] for _ in range(2)]
    await gateway.gang.finish(await gateway.gang.claim())
    assert [blob async for blob in gateway.blobs.list(f"tasks/{done}")]
    now = time.time()
    person = await stores.tenants.people.find(hers)
    assert person is not None and person.expires_at is not None
    await stores.link.client.zadd(stores.link.keys.guests(), {hers: now - 1, "g-ffffffffffffffff": now - 1})
    await stores.tenants.people.change(hers, lambda one: replace(one, expires_at=now - 1))
    await erase_guests(stores, now)
    gateway.inside.keys._kept.clear()
    assert (await ann.http.get("/v1/videos")).status_code == 401
    link = stores.link
    left = [name.decode() async for name in link.client.scan_iter(link.keys.pattern())]
    mine = [name for name in left if any(part in name for part in (done, waits, hers))]
    assert [
        n for n in mine if not any(f in n for f in (":usage:", ":counts:", ":rate:", ":allowance:"))
    ] == []
    assert [blob.key async for blob in gateway.blobs.list(f"tasks/{done}")] == []
    assert await stores.tenants.people.guests() == 1 and (await ben.http.get("/v1/videos")).status_code == 200
    assert his != hers


async def test_five_hundred_guests_change_nothing_for_a_tenant(stores: Stores, tmp_path: Path) -> None:
    """Over HTTP, each from an address of her own: the tenant's place, the order and the gangs are as without them."""
    many = replace(SETTINGS, most=500)
    async with open_to_guests(stores, tmp_path, many) as gateway:
        few = asyncio.Semaphore(16)

        async def flood(number: int) -> list[int]:
            one = Guest(gateway, f"198.51.{number // 250}.{number % 250}")
            async with few:
                await one.come()
                return [(await one.http.post("/v1/videos", json=BALL)).status_code for _ in range(3)]

        answers = await asyncio.gather(*(flood(number) for number in range(500)))
        assert all(codes == [200, 200, 429] for codes in answers)
        under_way = await gateway.gang.claim()
        assert under_way.priority is Priority.GUEST
        mine = [(await gateway.http.post("/v1/videos", json=BALL)).json() for _ in range(3)]
        assert [one["queue_position"] for one in mine] == [0, 1, 2], "as if nobody else were there"
        key = stores.link.keys.unfinished("wan-tiny-t2v")
        await stores.link.client.zadd(key, {mine[0]["id"]: 1.0})  # it has waited for some seconds
        [put_back] = await stores.queue.make_way("wan-tiny-t2v", gateway.gang.config.tasks.limits)
        assert put_back.id == under_way.id, "the gang gets free for the tenant"
        claimed = [await gateway.gang.claim() for _ in range(4)]
        assert [task.id for task in claimed[:3]] == [one["id"] for one in mine]
        assert claimed[3].priority is Priority.GUEST


@pytest.fixture
async def chat(stores: Stores, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(stores, tmp_path, guests=SETTINGS) as made:
        yield made


async def test_guests_chat_so_often_a_day_and_leave_the_last_seat_to_others(chat: Chat) -> None:
    asking, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> None:
        asking.set()
        await go_on.wait()
        await at_once(*given)

    await chat.replica(slow)
    await chat.route(concurrency=2)
    ann = Guest(chat.gateway)
    await ann.come()
    page = {**ann.cookie, "origin": chat.base}
    async with (
        httpx.AsyncClient(base_url=chat.base, headers=page, timeout=30) as http,
        chat.client() as tenant,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(http.post(PATH, json=ASK))
        await asking.wait()
        second = group.create_task(http.post(PATH, json=ASK))
        board = chat.gateway.inside.chat.switchboard
        while board.demand()["m"].waiting != 1:
            await asyncio.sleep(0.01)
        asking.clear()
        mine = group.create_task(tenant.post(PATH, json=ASK))
        await asking.wait()  # it has the seat that the guest who waits may not take
        assert board.demand()["m"].waiting == 1
        go_on.set()
    assert [one.result().status_code for one in (first, second, mine)] == [200, 200, 200]
    async with httpx.AsyncClient(base_url=chat.base, headers=page, timeout=30) as http:
        assert refused(await http.post(PATH, json=ASK)) == (429, "daily_limit")
