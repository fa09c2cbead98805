"""What was asked for today, in Redis: by account, against what each may ask for. Videos are counted by the script that accepts
them."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from turnout.errors import TurnoutError
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import number
from turnout.tenants import tenant_scripts
from turnout.tenants.allowance_rules import Allowance, Counted, limits_on, over_allowance
from turnout.tenants.usage_rules import day_of


class AllowanceStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def spend(self, allowances: tuple[Allowance, ...], what: Counted, now: float) -> None:
        """Raises Limited, and counts nothing, where one of them is used up."""
        limits = limits_on(allowances, what)
        if limits:
            reached = await tenant_scripts.spend_allowance(
                self._link, day=day_of(now), what=what, by=1, limits=limits
            )
            if reached is not None:
                raise over_allowance(what, reached, now)

    async def spend_way_in(self, account: str, most: int, now: float) -> None:
        """Raises Limited when `account` made so many today."""
        limits = [(account, most)]
        reached = await tenant_scripts.spend_allowance(
            self._link, day=day_of(now), what="ways in", by=1, limits=limits
        )
        if reached is not None:
            raise over_allowance("ways in", reached, now)

    @asynccontextmanager
    async def given_back_if_refused(
        self, allowances: tuple[Allowance, ...], what: Counted, now: float
    ) -> AsyncGenerator[None]:
        """What was spent comes back if it is refused after all."""
        try:
            yield
        except TurnoutError:
            await self.give_back(allowances, what, 1, now)
            raise

    async def give_back(
        self, allowances: tuple[Allowance, ...], what: Counted, times: int, now: float
    ) -> None:
        limits = limits_on(allowances, what)
        if limits and times:
            await tenant_scripts.spend_allowance(
                self._link, day=day_of(now), what=what, by=-times, limits=limits
            )

    async def asked(self, account: str, now: float) -> Mapping[Counted, int]:
        async with translated():
            name = self._link.keys.allowance(account, day_of(now))
            videos, chats = await self._link.client.hmget(name, "videos", "chats")
        return {"videos": number(videos), "chats": number(chats)}
