"""Accounts that gateways share: nobody gets more than there is, and what a dead gateway held comes back."""

import asyncio

from tests.conftest import Stores, wait_until

from turnout.chat.quota_accounts import Quotas
from turnout.chat.quota_rules import ChatLimits, Grant, ShareRequest
from turnout.tasks.task_rules import TenantId

ACME = TenantId("acme")


async def test_requests_run_out_for_all_gateways_together_and_drip_back(stores: Stores) -> None:
    quotas = Quotas(stores.link)
    limits = ChatLimits(requests_per_minute=6)

    async def take(gateway: str, requests: int) -> Grant:
        return await quotas.lease(gateway, ACME, limits, ShareRequest(requests=requests))

    assert (await take("a", 4)).requests == 4
    assert (await take("b", 4)).requests == 2
    empty = await take("a", 4)
    assert empty.requests == 0
    assert 0 <= empty.left_requests < 1
    assert (await quotas.lease("a", TenantId("other"), limits, ShareRequest(requests=4))).requests == 4
    await take("b", -2)
    assert (await take("a", 4)).requests == 2
    fast = ChatLimits(requests_per_minute=60_000)
    assert (await quotas.lease("a", ACME, fast, ShareRequest(requests=1))).requests in (0, 1)

    async def dripped() -> bool:
        return (await quotas.lease("a", ACME, fast, ShareRequest(requests=1))).requests == 1

    await wait_until(dripped, "the account to fill again")


async def test_an_account_is_never_over_full(stores: Stores) -> None:
    quotas = Quotas(stores.link)
    limits = ChatLimits(requests_per_minute=5, tokens_per_minute=100)
    given = await quotas.lease("a", ACME, limits, ShareRequest(requests=-50, tokens=-1000))
    assert (given.left_requests, given.left_tokens) == (5, 100)


async def test_debt_is_paid_before_anything_is_lent(stores: Stores) -> None:
    quotas = Quotas(stores.link)
    limits = ChatLimits(tokens_per_minute=100)
    grant = await quotas.lease("a", ACME, limits, ShareRequest(tokens=10, debt=250))
    assert grant.tokens == 0
    assert -150 <= grant.left_tokens < -149
    assert (await quotas.lease("b", ACME, limits, ShareRequest(tokens=10))).tokens == 0


async def test_slots_are_shared_and_those_of_a_silent_gateway_lapse(stores: Stores) -> None:
    quotas = Quotas(stores.link, slots_s=1.5)
    limits = ChatLimits(concurrency=5)

    async def hold(gateway: str, permits: int) -> int:
        return (await quotas.lease(gateway, ACME, limits, ShareRequest(permits=permits))).permits

    assert await hold("a", 3) == 3
    assert await hold("b", 4) == 2
    assert await hold("a", 4) == 3
    assert await hold("a", 1) == 1
    assert await hold("b", 9) == 4

    async def b_has_all() -> bool:
        return await hold("b", 9) == 5

    await wait_until(b_has_all, "the silent gateway's permit to lapse")


async def test_wishes_at_the_same_moment_are_served_one_after_the_other(stores: Stores) -> None:
    quotas = Quotas(stores.link)
    limits = ChatLimits(requests_per_minute=50, concurrency=20)
    grants = await asyncio.gather(
        *(quotas.lease(f"g{n}", ACME, limits, ShareRequest(requests=7, permits=3)) for n in range(10))
    )
    assert sum(g.requests for g in grants) == 50
    assert sum(g.permits for g in grants) == 20


async def test_nothing_stays_for_ever(stores: Stores) -> None:
    quotas = Quotas(stores.link)
    await quotas.lease(
        "a", ACME, ChatLimits(10, 1000, 5), ShareRequest(requests=5, tokens=5, debt=90_000, permits=2)
    )
    keys = [k async for k in stores.link.client.scan_iter(f"{stores.link.keys.prefix}:chat:*")]
    assert len(keys) == 2
    for key in keys:
        assert 0 < await stores.link.client.pttl(key) < 91 * 60_000 + 1000


async def test_a_request_that_is_sent_again_counts_once(stores: Stores) -> None:
    quotas, limits = Quotas(stores.link), ChatLimits(100, 1000, 0)
    request = ShareRequest(requests=5, tokens=10, debt=20, lent_requests=3, lent_tokens=30)
    first = await quotas.lease("a", ACME, limits, request, 1)
    again = first
    for _ in range(3):
        again = await quotas.lease("a", ACME, limits, request, 1)
        assert (again.requests, again.tokens) == (first.requests, first.tokens) == (5, 10)
    assert 92 <= again.left_requests < 95
    assert 940 <= again.left_tokens < 960
    assert (await quotas.lease("a", ACME, limits, ShareRequest(requests=5), 2)).requests == 5
    late = await quotas.lease("a", ACME, limits, request, 1)
    assert late.left_requests > 86, "an old one that comes late changes nothing"
