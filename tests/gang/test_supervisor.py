"""What ends a gang: decided by its ranks' signs of life, here without any process."""

import os
import signal
from typing import Any, cast

import pytest

from turnout.errors import Unauthorized, Unavailable
from turnout.gang.heartbeat import READY
from turnout.gang.supervisor import GangOrders, GangSupervisor
from turnout.tasks.task_rules import GangId


class SilentRank:
    """Lives until it is killed."""

    pid = 1
    returncode: int | None = None

    def kill(self) -> None:
        self.returncode = -signal.SIGKILL

    async def wait(self) -> int:
        return self.returncode or 0

    def last_words(self) -> str:
        return ""


class LoadingRanks:
    """They never get as far as a loaded model."""

    def __init__(self) -> None:
        self.started = 0

    async def start(self, number: int, rendezvous: str) -> tuple[SilentRank, int]:
        self.started += 1
        signs, theirs = os.pipe()
        os.set_blocking(signs, False)
        os.close(theirs)
        return SilentRank(), signs


class CrashingRanks(LoadingRanks):
    """They load, and die."""

    async def start(self, number: int, rendezvous: str) -> tuple[SilentRank, int]:
        self.started += 1
        assert self.started == 1, "formed anew"
        signs, theirs = os.pipe()
        os.write(theirs, READY)
        os.close(theirs)
        rank = SilentRank()
        rank.returncode = 1
        return rank, signs


class Service:
    """The gateway, as far as a supervisor calls it."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def give_back(self, reason: str, *, counts: bool) -> None:
        assert counts
        self.reasons.append(reason)


async def test_a_gang_that_does_not_load_in_time_ends_with_that_reason_and_is_not_tried_again() -> None:
    orders = GangOrders("m", GangId("g"), 2, 60.0, 60.0, 1.0, load_timeout_s=0.01)
    ranks, service = LoadingRanks(), Service()
    with pytest.raises(Unavailable, match="load_timeout_s"):
        await GangSupervisor(orders, cast(Any, ranks), cast(Any, service)).run()
    assert ranks.started == 2
    assert service.reasons == ["its model was not loaded within 0.01 s (load_timeout_s)"]


async def test_a_gang_that_lost_its_right_ends_so_that_another_gets_a_new_one() -> None:
    """Its token never becomes good again: with data that was restored from a copy, gateways sign by another secret."""

    class Refusing(Service):
        async def give_back(self, reason: str, *, counts: bool) -> None:
            raise Unauthorized("its right has ended")

    orders = GangOrders("m", GangId("g"), 1, 60.0, 60.0, 1.0, load_timeout_s=60.0)
    ranks = CrashingRanks()
    with pytest.raises(Unauthorized, match="its right has ended"):
        await GangSupervisor(orders, cast(Any, ranks), cast(Any, Refusing())).run()
    assert ranks.started == 1
