"""A node that is cut off from the others for a while: each in a network namespace with an address of its own.

Needs root and iproute2, so it runs only when asked for: `sudo ./dev test-ray -m netns`.
"""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.on_ray.cluster import (
    Cluster,
    OnRay,
    deployed,
    driver,
    running_cluster,
    running_redis,
    settings,
    tiny,
)

from turnout.tasks.task_rules import Finished, Stage

pytestmark = [pytest.mark.netns, pytest.mark.xdist_group("ray"), pytest.mark.timeout(1500)]
NET = "10.77.31"
BRIDGE = "trnbr"
STEPS = 120
# As docs/ray.md recommends: with Ray's own a minute goes by before it gives up a node that is silent.
HEALTH = {"RAY_health_check_timeout_ms": "3000", "RAY_health_check_failure_threshold": "3"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Land:
    """One namespace, wired to the bridge."""

    name: str
    address: str

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    def make(self) -> None:
        ip("netns", "add", self.name)
        ip("link", "add", f"v{self.name}", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", f"v{self.name}", "master", BRIDGE, "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            subprocess.run([*self.prefix, "ip", *words], check=True)
        subprocess.run([*self.prefix, "ip", "link", "set", "lo", "up"], check=True)

    def cut(self) -> None:
        """As if somebody pulled the cable at the switch: the node sees a network that is up and silent."""
        ip("link", "set", f"v{self.name}", "nomaster")

    def heal(self) -> None:
        ip("link", "set", f"v{self.name}", "master", BRIDGE)


LANDS = [Land(f"trn{number}", f"{NET}.{number + 2}") for number in range(4)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head here, and nodes with place for one rank each: each test needs three, and takes one away."""
    with contextlib.ExitStack() as stack:
        ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(ip, "link", "del", BRIDGE)
        ip("addr", "add", f"{NET}.1/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for land in LANDS:
            stack.callback(ip, "netns", "del", land.name)
            land.make()
        head = ["--node-ip-address", f"{NET}.1"]
        with running_cluster(0, environ=HEALTH, host=f"{NET}.1", extra=head) as cluster:
            for land in LANDS:
                cluster.add(1, prefix=land.prefix, extra=["--node-ip-address", land.address]).wait_started()
            with driver(cluster.address):
                yield cluster


@pytest.fixture(scope="module")
def redis(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """On the network: the manager's."""
    with running_redis(f"{NET}.1", tmp_path_factory.mktemp("redis")) as address:
        yield f"redis://{address}/0"


async def test_a_node_cut_off_for_a_moment_and_for_long(
    cluster: Cluster, redis: str, tmp_path: Path, figures: Any
) -> None:
    config = settings(tmp_path, redis, {"two": tiny(2, idle_s=60.0)}, checkpoint_steps=5)
    async with deployed(config, f"{NET}.1") as on_ray:
        expected = await on_ray.video(await on_ray.ended((await on_ray.submit("two", STEPS)).id, 600))
        far = await node_of_rank(on_ray, 1)
        task = await on_ray.submit("two", STEPS)
        await on_ray.at_step(task.id, 5)
        far.cut()
        at_once = await on_ray.stores.tasks.get(task.id)
        await asyncio.sleep(config.tasks.lease_s / 3)
        stuck = await on_ray.stores.tasks.get(task.id)
        far.heal()
        assert stuck.step - at_once.step <= 2, "without its peer a rank cannot go on"
        done = await on_ray.ended(task.id, 600)
        assert (done.attempt, await on_ray.video(done)) == (1, expected)
        figures(
            f"ray: node cut off for {config.tasks.lease_s / 3:.1f} s (lease {config.tasks.lease_s:g} s) at step {stuck.step}: "
            "the same attempt went on"
        )
        figures(await cut_for_good(on_ray, far, "a node", expected))


async def test_the_leader_s_node_cut_off(cluster: Cluster, redis: str, tmp_path: Path, figures: Any) -> None:
    """It can put nothing back; what it holds is free when the lease runs out, and what it still does counts for
    nothing."""
    config = settings(tmp_path, redis, {"two": tiny(2, idle_s=60.0)}, checkpoint_steps=5)
    async with deployed(config, f"{NET}.1") as on_ray:
        expected = await on_ray.video(await on_ray.ended((await on_ray.submit("two", STEPS)).id, 600))
        figures(await cut_for_good(on_ray, await node_of_rank(on_ray, 0), "the leader's node", expected))


async def node_of_rank(on_ray: OnRay, number: int) -> Land:
    [gang] = await on_ray.formed("two")
    assert len({rank.address for rank in gang.ranks}) == 2, "each rank has an address of its own"
    return next(land for land in LANDS if land.address == gang.ranks[number].address)


async def cut_for_good(on_ray: OnRay, land: Land, what: str, expected: bytes) -> str:
    """Until the others have gone on without it."""
    task = await on_ray.submit("two", STEPS)
    await on_ray.at_step(task.id, 8)
    land.cut()
    began = time.monotonic()
    again = await on_ray.until(
        task.id, lambda t: t.attempt > 1 and t.stage is Stage.DENOISING, "to go on without the node", 600
    )
    took_s = time.monotonic() - began
    land.heal()
    done = await on_ray.ended(task.id, 600)
    assert (done.failures, await on_ray.video(done)) == (1, expected)
    assert sum(isinstance(r.event, Finished) for r in await on_ray.story(task.id)) == 1
    return f"ray: {what} cut off for good: rendering again on another after {took_s:.0f} s from step {again.step}"
