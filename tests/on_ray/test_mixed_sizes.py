"""A model of two ranks and one of four on a cluster with place for four: neither waits for ever."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.on_ray.cluster import Cluster, deployed, driver, running_cluster, settings, tiny

from turnout.tasks.task_rules import Cancelled, Stage, State

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(2, 2) as cluster, driver(cluster.address):
        yield cluster


async def test_a_large_gang_gets_its_turn_beside_a_small_one_that_is_always_busy(
    cluster: Cluster, valkey: str, tmp_path: Path, figures: Any
) -> None:
    models = {"small": tiny(2, idle_s=5.0), "large": tiny(4, idle_s=5.0)}
    config = settings(tmp_path, valkey, models, ray_turn_s=20.0)
    async with deployed(config) as on_ray:
        endless = await on_ray.submit("small", 5000)
        before = await on_ray.at_step(endless.id, 5)
        began = time.monotonic()
        large = await on_ray.submit("large", 6)
        done = await on_ray.ended(large.id, 400)
        assert done.state is State.COMPLETED
        took_s = time.monotonic() - began
        back = await on_ray.until(
            endless.id,
            lambda t: t.attempt > 1 and t.stage is Stage.DENOISING,
            "the small one to have its turn again",
            400,
        )
        assert back.failures == 0
        assert back.step >= before.step
        await on_ray.stores.tasks.apply(endless.id, Cancelled(time.time()))
        figures(
            f"ray: 4 ranks against a busy gang of 2 on 4 CPUs, turns of {config.ray.ray_turn_s:g} s: video after {took_s:.0f} s; "
            f"the other was drained at its turn's end and went on at step {back.step}"
        )
