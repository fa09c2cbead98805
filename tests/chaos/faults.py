"""Every fault that is caused: what it hits, how long it lasts, and that it is over when the function returns."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil
from tests.chaos.cluster import GATEWAYS, MANAGERS, WORKERS, Cluster, GateMode, answers, wait_for

from turnout.errors import Unavailable
from turnout.store.connection import translated

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Fault:
    """`needs_running`: it hits a task that is being denoised. `weight`: how often it comes in one round. Two of the same `kind`
    are not caused at once, as the end of one would end the other. `cuts`: clients may lose connections by it."""

    name: str
    cause: Callable[[Cluster, random.Random], Awaitable[None]]
    needs_running: bool = False
    weight: int = 1
    needs_box: bool = False
    kind: str = ""
    cuts: bool = False


async def kill_one(cluster: Cluster, chance: random.Random, found: Sequence[psutil.Process]) -> None:
    if found:
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(found).kill()


async def kill_rank(cluster: Cluster, chance: random.Random) -> None:
    await kill_one(cluster, chance, cluster.ranks())


async def kill_gang(cluster: Cluster, chance: random.Random) -> None:
    await kill_one(cluster, chance, cluster.gangs())


async def kill_worker(cluster: Cluster, chance: random.Random) -> None:
    await kill_one(cluster, chance, [cluster.process(name) for name in WORKERS])


async def kill_engine(cluster: Cluster, chance: random.Random) -> None:
    await kill_one(cluster, chance, cluster.engines())


async def drain_worker(cluster: Cluster, chance: random.Random) -> None:
    """It finishes what it has, gets nothing new, and is back when that is over, which may be after this returns."""
    cluster.children[chance.choice(WORKERS)].terminate()


async def kill_gateway(cluster: Cluster, chance: random.Random) -> None:
    await kill_one(cluster, chance, [cluster.process(name) for name in GATEWAYS])


async def kill_manager(cluster: Cluster, chance: random.Random) -> None:
    await kill_one(cluster, chance, [cluster.process(name) for name in MANAGERS])


async def kill_redis(cluster: Cluster, chance: random.Random) -> None:
    await kill_one(cluster, chance, [cluster.process("redis")])


async def stop_rank(cluster: Cluster, chance: random.Random) -> None:
    """It is stopped for good; its supervisor must notice."""
    if ranks := cluster.ranks():
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(ranks).suspend()


async def make_zombie(cluster: Cluster, chance: random.Random) -> None:
    """A whole gang is stopped for longer than its lease, and then goes on as if nothing had happened."""
    gangs = cluster.gangs()
    if not gangs:
        return
    gang = chance.choice(gangs)
    with contextlib.suppress(psutil.NoSuchProcess):
        gang.suspend()  # first, or it would notice that its ranks are stopped
        family = gang.children(recursive=True)
        for process in family:
            process.suspend()
        await asyncio.sleep(2 * cluster.lease_s + 2)
        for process in (*family, gang):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


async def stop_redis(cluster: Cluster, chance: random.Random) -> None:
    """It hangs for longer than the lease."""
    redis = cluster.process("redis")
    redis.suspend()
    try:
        await asyncio.sleep(1.5 * cluster.lease_s)
    finally:
        redis.resume()


async def keep_redis_away(cluster: Cluster, chance: random.Random) -> None:
    """It is gone for longer than the lease."""
    cluster.redis_may_run.clear()
    cluster.process("redis").kill()
    try:
        await asyncio.sleep(1.5 * cluster.lease_s)
    finally:
        cluster.redis_may_run.set()


async def fill_disk(cluster: Cluster, chance: random.Random) -> None:
    cluster.fill_disk()
    try:
        await asyncio.sleep(chance.uniform(1, cluster.lease_s))
    finally:
        cluster.free_disk()


async def fill_memory(cluster: Cluster, chance: random.Random) -> None:
    """Redis refuses all writes that take memory."""
    async with cluster.redis() as client:
        await wait_for(lambda: _set_memory(client, 1), "redis to take a setting", 60)
        try:
            await asyncio.sleep(chance.uniform(1, 1.5 * cluster.lease_s))
        finally:
            await wait_for(lambda: _set_memory(client, 0), "redis to take a setting", 60)


async def _set_memory(client: Any, max_bytes: int) -> bool:
    try:
        async with translated():
            await client.config_set("maxmemory", max_bytes)
        return True
    except Unavailable:
        return False


async def take_s3_away(cluster: Cluster, chance: random.Random) -> None:
    await _s3_is(cluster, "away", chance.uniform(2, 1.5 * cluster.lease_s))


async def slow_s3(cluster: Cluster, chance: random.Random) -> None:
    await _s3_is(cluster, "slow", chance.uniform(5, 2 * cluster.lease_s))


async def stall_s3(cluster: Cluster, chance: random.Random) -> None:
    await _s3_is(cluster, "stalled", chance.uniform(2, 1.5 * cluster.lease_s))


async def _s3_is(cluster: Cluster, mode: GateMode, seconds: float) -> None:
    cluster.gate.set(mode)
    try:
        await asyncio.sleep(seconds)
    finally:
        cluster.gate.set("open")


async def cut_link(cluster: Cluster, chance: random.Random) -> None:
    """Workers in a network of their own reach nobody, for longer than the lease."""
    if cluster.box is not None:
        await cluster.box.cut(2 * cluster.lease_s)


async def step_clock(cluster: Cluster, chance: random.Random) -> None:
    """The wall clock of one part, and of its children, is an hour off for a while."""
    name = chance.choice(sorted(cluster.clocks))
    offset_s = chance.choice((-HOUR_S, HOUR_S))
    cluster.clocks[name].step(offset_s)
    try:
        await asyncio.sleep(chance.uniform(4, 2 * cluster.lease_s))
    finally:
        cluster.clocks[name].step(0)


async def restart_in_turn(cluster: Cluster, chance: random.Random) -> None:
    """Asks each gateway, manager and worker to leave, one after the other, as an upgrade does."""
    for name in (*GATEWAYS, *MANAGERS, *WORKERS):
        before = cluster.children[name]
        before.terminate()

        def is_back(name: str = name, before: object = before) -> bool:
            return cluster.children[name] is not before

        await wait_for(is_back, f"{name} to be restarted", 90)
        if name in GATEWAYS:
            url = cluster.urls[GATEWAYS.index(name)]
            await wait_for(lambda url=url: answers(url), f"{name} to answer", 90)


FAULTS = (
    Fault("kill rank", kill_rank, needs_running=True, weight=3),
    Fault("kill gang", kill_gang, needs_running=True, weight=2),
    Fault("kill worker", kill_worker, needs_running=True),
    Fault("kill engine", kill_engine),
    Fault("drain worker", drain_worker, needs_running=True),
    Fault("kill gateway", kill_gateway, weight=2, cuts=True),
    Fault("kill manager", kill_manager),
    Fault("kill redis", kill_redis, weight=2, kind="redis"),
    Fault("stop rank", stop_rank, needs_running=True),
    Fault("zombie gang", make_zombie, needs_running=True, weight=2),
    Fault("redis hangs past the lease", stop_redis, needs_running=True, kind="redis"),
    Fault("redis away past the lease", keep_redis_away, needs_running=True, kind="redis"),
    Fault("disk full", fill_disk, needs_running=True, weight=2, kind="disk"),
    Fault("redis out of memory", fill_memory, needs_running=True, kind="redis"),
    Fault("s3 away", take_s3_away, needs_running=True, kind="s3"),
    Fault("s3 slow", slow_s3, needs_running=True, kind="s3"),
    Fault("s3 hangs", stall_s3, needs_running=True, kind="s3"),
    Fault("link cut past the lease", cut_link, needs_running=True, needs_box=True, kind="link", cuts=True),
    Fault("clock an hour off", step_clock, weight=3, kind="clock"),
    Fault("rolling restart", restart_in_turn, kind="restart", cuts=True),
)


def schedule(seed: int, *, box: bool) -> list[Fault]:
    """One round of all faults, each as often as it weighs, in an order that the seed gives."""
    chosen = [replace(f) for f in FAULTS for _ in range(f.weight) if box or not f.needs_box]
    random.Random(seed).shuffle(chosen)
    return chosen


def stacks(faults: Sequence[Fault], most: int, chance: random.Random) -> Iterator[tuple[Fault, ...]]:
    """The faults in their order, over and over, up to `most` of them at once."""
    coming: Iterator[Fault] = itertools.cycle(faults)
    following = next(coming)
    while True:
        stack = [following]
        following = next(coming)
        size = chance.randint(1, most)
        while len(stack) < size and not any(_clash(following, one) for one in stack):
            stack.append(following)
            following = next(coming)
        yield tuple(stack)


def _clash(one: Fault, other: Fault) -> bool:
    return one.name == other.name or (bool(one.kind) and one.kind == other.kind)
