"""A node above Ray's memory threshold: whatever runs there is killed, and the owners of tasks are told."""

from pathlib import Path

import pytest
from tests.on_ray.cluster import Cluster, deployed, driver, running_cluster, settings, tiny

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]


async def test_a_node_that_ran_low_on_memory_is_named(valkey: str, tmp_path: Path) -> None:
    """Serve and the manager are on the head, where there is enough."""
    low = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "250"}
    with running_cluster(0) as cluster, driver(cluster.address):
        Cluster(cluster.address, cluster.folder, low, cluster.head, cluster.nodes).add(2).wait_started()
        async with deployed(settings(tmp_path, valkey, {"two": tiny(2)})) as on_ray:
            await on_ray.submit("two")
            await on_ray.told("two", "its node ran low on memory")
