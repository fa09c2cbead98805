"""A tenant whose addresses never answer holds up its own calls alone; and nothing is called for what its limits refuse."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import Stores, make_task, wait_until
from tests.gateways import bearer, picture, running
from tests.people.test_guests import Guest
from tests.tasks.test_content_check import REFUSE, checked

from turnout.errors import Limited, Unavailable
from turnout.store import outbound as outbound_module
from turnout.store.outbound import Outbound
from turnout.tasks.delivery_rules import AT_ONCE, OF_ONE, next_deliveries
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.task_rules import Cancelled, Limits, TenantId
from turnout.tasks.webhooks import WebhookSender
from turnout.tenants.tenant_settings import GuestSettings
from turnout.tenants.tenant_turns import TenantTurns, TurnLimits
from turnout.tenants.turn_rules import turn_of_other

SECRET = "whsec_c2VjcmV0IG9mIHNvbWUgbGVuZ3Ro"
PATIENCE_S = 8.0  # less than any call's own deadline: who waits for another's call fails by this


class Site:
    """Answers /picture and /hook at once, and says nothing to all else until it is closed."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[:2]
        self.asked.append(path)
        if path in ("/picture", "/hook"):
            body = picture()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        elif method == "GET":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nand so on")
        if path == "/silent":
            await self.closed.wait()
        writer.close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made
        made.closed.set()


@pytest.fixture
def one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's clock stands: a minute that ends in the middle of a test lets as many in again."""
    now = time.time()
    clock = SimpleNamespace(time=lambda: now, monotonic=time.monotonic)
    monkeypatch.setattr("turnout.run.build_gateway.time", clock)


async def test_pictures_that_never_end_hold_up_no_other_tenant(
    stores: Stores, tmp_path: Path, site: Site
) -> None:
    async with running(stores, tmp_path, allow_private_urls=True) as gateway:
        other = bearer(await gateway.key("other"))
        fields = {"prompt": "a red ball", "model": "wan-tiny-ti2v"}

        async def ask() -> None:
            await gateway.http.post("/v1/videos", json={**fields, "image_url": site.url("/silent")})

        slow = [asyncio.create_task(ask()) for _ in range(24)]
        await wait_until(lambda: site.asked.count("/silent") >= 4, "the first pictures are under way")
        async with asyncio.timeout(PATIENCE_S):
            answer = await gateway.http.post(
                "/v1/videos", json={**fields, "image_url": site.url("/picture")}, headers=other
            )
        assert answer.status_code == 200, answer.text
        assert site.asked.count("/silent") == 4  # and no more of them
        assert not any(one.done() for one in slow)
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_guests_hold_up_no_tenant_however_many_they_are(
    stores: Stores, tmp_path: Path, site: Site
) -> None:
    """Each has a tenant of her own, and anyone may come as one: six had all places between them."""
    async with running(stores, tmp_path, allow_private_urls=True, guests=GuestSettings()) as gateway:
        fields = {"prompt": "a red ball", "model": "wan-tiny-ti2v"}
        guests = [Guest(gateway) for _ in range(6)]
        for guest in guests:
            await guest.come()
        silent = {**fields, "image_url": site.url("/silent")}
        slow = [
            asyncio.create_task(guest.http.post("/v1/videos", json=silent))
            for guest in guests
            for _ in range(5)
        ]
        await wait_until(lambda: site.asked.count("/silent") >= 4, "the first pictures are under way")
        async with asyncio.timeout(PATIENCE_S):
            answer = await gateway.http.post("/v1/videos", json={**fields, "image_url": site.url("/picture")})
        assert answer.status_code == 200, answer.text
        assert site.asked.count("/silent") == 4, "all guests together have as many places as a tenant"
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_nobody_is_asked_for_what_is_over_the_limits_or_was_accepted_before(
    stores: Stores, tmp_path: Path, one_minute: None
) -> None:
    """A caller over its limits had the operator's check called as often as it liked."""
    async with checked(stores, tmp_path, limit_submits_per_minute=2) as (gateway, checker):
        headers = {"Idempotency-Key": "once"}
        first = await gateway.http.post("/v1/videos", json={"prompt": "a ball"}, headers=headers)
        checker.verdict = lambda _: REFUSE
        again = await gateway.http.post("/v1/videos", json={"prompt": "a ball"}, headers=headers)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
        assert len(checker.asked) == 1, "what was accepted is not judged anew"
        answers = [await gateway.http.post("/v1/videos", json={"prompt": "a gun"}) for _ in range(4)]
        assert [one.status_code for one in answers] == [400, 429, 429, 429]
        assert len(checker.asked) == 2


@asynccontextmanager
async def silent_dns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """The system's resolver says nothing about names in silent.example while this is open; yields those it was asked."""
    asked: list[str] = []
    over, real = threading.Event(), socket.getaddrinfo

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).endswith(".silent.example"):
            asked.append(host)
            over.wait()
            raise OSError("no answer")
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        yield asked
    finally:
        over.set()


async def test_silent_names_hold_up_no_other_tenant(
    stores: Stores, tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        silent_dns(monkeypatch) as asked,
        running(stores, tmp_path, allow_private_urls=True) as gateway,
    ):
        other = bearer(await gateway.key("other"))

        async def ask(n: int) -> None:
            url = f"http://n{n}.silent.example/hook"
            await gateway.http.post("/v1/videos", json={"prompt": "a ball", "webhook_url": url})

        slow = [asyncio.create_task(ask(n)) for n in range(30)]
        await wait_until(lambda: len(asked) >= 2, "the first names are being looked up")
        hook = f"http://localhost:{site.port}/hook"
        async with asyncio.timeout(PATIENCE_S):
            answer = await gateway.http.post(
                "/v1/videos", json={"prompt": "a ball", "webhook_url": hook}, headers=other
            )
        assert answer.status_code == 200, answer.text
        assert len(asked) == 2
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_a_look_up_that_nobody_waits_for_keeps_its_place_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with silent_dns(monkeypatch) as asked, aclosing(Outbound(True)) as outbound:
        for n in range(4):
            check = asyncio.create_task(outbound.check(f"http://n{n}.silent.example/", turn_of_other("me")))
            await wait_until(lambda n=n: len(asked) == min(n + 1, 2), "it has its place, or waits")
            check.cancel()
            await asyncio.gather(check, return_exceptions=True)
        assert asked == ["n0.silent.example", "n1.silent.example"]
        await outbound.check("http://localhost/", turn_of_other("other"))
    await wait_until(lambda: outbound._look_ups.idle, "the places are given back")


async def ended_with_hook(stores: Stores, tenant: str, url: str) -> None:
    task = make_task(webhook_url=url, tenant=TenantId(tenant))
    await stores.tasks.submit(task, Limits(1000, 1000, 1000))
    await stores.tasks.apply(task.id, Cancelled(time.time() - 10))


async def test_silent_webhooks_hold_up_no_other_tenants(stores: Stores, site: Site) -> None:
    for _ in range(40):
        await ended_with_hook(stores, "slow", site.url("/silent"))
    async with aclosing(Outbound(True)) as outbound:
        urls = UrlSigner(b"secret", "https://gateway", 60)
        sender = WebhookSender(
            stores.outbox, outbound, stores.webhook_secrets, SECRET, 3600, urls, time.time, lambda: 0.0
        )
        sending = asyncio.create_task(sender.send_due())
        await wait_until(lambda: site.asked.count("/silent") == OF_ONE, "the slow ones are under way")
        await ended_with_hook(stores, "other", site.url("/hook"))
        await wait_until(
            lambda: "/hook" in site.asked, "the other's webhook has gone out", timeout_s=PATIENCE_S
        )
        assert site.asked.count("/silent") == OF_ONE and not sending.done()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_what_waits_behind_a_thousand_of_one_tenants_is_found(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.tasks.webhook_outbox._WINDOW", 10)
    for _ in range(25):
        await ended_with_hook(stores, "slow", "http://receiver.example/")
    await ended_with_hook(stores, "other", "http://receiver.example/")
    now, under_way = time.time(), {TenantId("slow"): OF_ONE}
    looks = [await stores.outbox.due(now, 90, under_way) for _ in range(3)]
    assert [[one.tenant for one in look] for look in looks] == [[], [], ["other"]]


def test_the_tenant_with_the_fewest_under_way_is_next() -> None:
    a, b, c = TenantId("a"), TenantId("b"), TenantId("c")
    due = [*((f"a{n}", a) for n in range(9)), ("b0", b), ("b1", b), ("c0", c)]
    assert next_deliveries(due, {}) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
    assert next_deliveries(due, {a: OF_ONE}) == ["b0", "c0", "b1"]
    assert next_deliveries(due, {c: AT_ONCE - 1}) == ["a0"]
    assert next_deliveries(due, {c: AT_ONCE}) == []


@pytest.mark.usefixtures("one_minute")
@pytest.mark.parametrize("refused_by", ["rate", "room", "budget"])
async def test_nothing_is_called_for_a_submission_that_is_refused(
    stores: Stores, tmp_path: Path, site: Site, refused_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"limit_submits_per_minute": 1} if refused_by == "rate" else {}
    limits |= {"limit_waiting": 1, "limit_running": 0} if refused_by == "room" else {}
    async with running(stores, tmp_path, allow_private_urls=True, **limits) as gateway:
        fields = {"prompt": "a red ball", "model": "wan-tiny-ti2v"}
        await gateway.submit(**fields)
        if refused_by == "budget":

            def spent(tenant: TenantId) -> None:
                raise Limited("spent", code="over_budget")

            monkeypatch.setattr(gateway.inside.budgets, "refuse_if_spent", spent)
        answer = await gateway.http.post(
            "/v1/videos",
            json={**fields, "image_url": site.url("/picture"), "webhook_url": "http://no.such.example/"},
        )
        assert answer.status_code == 429, answer.text
        assert site.asked == []


@pytest.mark.usefixtures("one_minute")
async def test_addresses_that_fail_count_as_submissions(stores: Stores, tmp_path: Path, site: Site) -> None:
    async with running(stores, tmp_path, allow_private_urls=True, limit_submits_per_minute=3) as gateway:
        fields = {"prompt": "a ball", "model": "wan-tiny-ti2v", "image_url": site.url("/broken")}
        codes = [
            (await gateway.http.post("/v1/videos", json=fields)).json()["error"]["code"] for _ in range(4)
        ]
    assert codes == ["url_unreachable"] * 3 + ["rate_limit_exceeded"]
    assert len(site.asked) == 3


@pytest.mark.usefixtures("one_minute")
async def test_an_accepted_submission_counts_once_and_its_repetition_calls_nobody(
    stores: Stores, tmp_path: Path, site: Site
) -> None:
    async with running(stores, tmp_path, allow_private_urls=True, limit_submits_per_minute=2) as gateway:
        fields = {"prompt": "a ball", "model": "wan-tiny-ti2v", "image_url": site.url("/picture")}
        answers = [
            await gateway.http.post("/v1/videos", json=fields, headers={"idempotency-key": key})
            for key in ("one", "one", "two", "three")
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert site.asked == ["/picture", "/picture"]


# --- Turns.
TURNS = TurnLimits(places=3, of_one=2, waiting=4, wait_s=30, busy="Too many.", code="busy")


async def test_one_tenant_has_its_places_and_another_the_rest() -> None:
    turns, entered = TenantTurns(TURNS), list[str]()

    async def enter(tenant: str) -> None:
        await turns.enter(turn_of_other(tenant))
        entered.append(tenant)

    waiting = [asyncio.create_task(enter(tenant)) for tenant in ("a", "a", "a", "a", "b", "b")]
    await wait_until(lambda: len(entered) == 3, "three have a place")
    assert entered == ["a", "a", "b"]
    turns.leave(turn_of_other("a"))
    turns.leave(turn_of_other("a"))
    await wait_until(lambda: len(entered) == 5, "the next two have a place")
    assert sorted(entered[3:]) == ["a", "b"]  # in turn, though all of a's have waited longer
    turns.leave(turn_of_other("b"))
    await asyncio.gather(*waiting)
    for tenant in ("a", "a", "b"):
        turns.leave(turn_of_other(tenant))
    assert turns.idle


async def test_a_full_line_refuses_the_newest_of_whoever_has_most() -> None:
    turns = TenantTurns(TURNS)
    for _ in range(2):
        await turns.enter(turn_of_other("a"))
    await turns.enter(turn_of_other("c"))
    waiting = [asyncio.create_task(turns.enter(turn_of_other("a"))) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(Limited):
        await turns.enter(turn_of_other("a"))
    other = asyncio.create_task(turns.enter(turn_of_other("b")))
    with pytest.raises(Limited):
        await waiting[3]
    turns.leave(turn_of_other("c"))
    await other
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for tenant in ("a", "a", "b"):
        turns.leave(turn_of_other(tenant))
    assert turns.idle


async def test_who_waits_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    short = TurnLimits(places=1, of_one=1, waiting=4, wait_s=0.05, busy="Too many.", code="urls_busy")
    monkeypatch.setattr(outbound_module, "_CALLS", short)
    async with aclosing(Outbound(True)) as outbound:
        slow = asyncio.create_task(outbound.get(site.url("/silent"), 100, turn_of_other("me")))
        await wait_until(lambda: site.asked == ["/silent"], "the call is under way")
        with pytest.raises(Unavailable) as caught:
            await outbound.get(site.url("/picture"), 100, turn_of_other("other"))
        assert caught.value.code == "urls_busy"
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        assert outbound._calls.idle
