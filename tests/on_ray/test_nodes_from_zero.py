"""From a head alone to nodes, a gang and a video, and back to the head alone, with Ray's autoscaler (v2)."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from tests.conftest import wait_until
from tests.on_ray.cluster import (
    Cluster,
    deployed,
    driver,
    free_port,
    own_address,
    running_cluster,
    settings,
    tiny,
)

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray"), pytest.mark.timeout(1200)]

# Nodes are raylets on this machine, started by the autoscaler itself. Named as an external provider, because for its own
# name of it («fake_multinode») Ray looks for a file that its packages do not have.
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
HEAD_ID = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"
HEAD = "ray.head.default"
COMMANDS = (  # Ray reads them all, whatever the provider
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
)
ENVIRON = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
}


def autoscaling(head: str) -> dict[str, Any]:
    return {
        "cluster_name": "fake",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            "launch_multiple": True,
            "head_node_id": HEAD_ID,
            "gcs_address": head,
        },
        "available_node_types": {
            HEAD: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "machine": {
                "resources": {"CPU": 2, "object_store_memory": 100 * 2**20},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 2,
            },
        },
        "head_node_type": HEAD,
        "file_mounts": {},
        **{name: [] for name in COMMANDS},
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    file = tmp_path_factory.mktemp("autoscaling") / "config.json"
    port = free_port()
    file.write_text(json.dumps(autoscaling(f"{own_address()}:{port}")))
    extra = ["--autoscaling-config", str(file)]
    with running_cluster(0, environ=ENVIRON, port=port, extra=extra) as cluster, driver(cluster.address):
        yield cluster


async def test_nodes_come_with_the_first_task_and_go_after_the_last(
    cluster: Cluster, valkey: str, tmp_path: Path, figures: Any
) -> None:
    config = settings(tmp_path, valkey, {"four": tiny(4, idle_s=5.0)})
    async with deployed(config) as on_ray:
        assert nodes() == 1
        began = time.monotonic()
        told: list[str] = []

        def tell(what: str) -> None:
            told.append(f"{time.monotonic() - began:5.1f} s {what}")

        task = await on_ray.submit("four")
        await wait_until(lambda: nodes() == 3, "two nodes to come", 300)
        tell("two nodes are up")
        [gang] = await on_ray.formed("four")
        tell("the gang has all its ranks")
        assert len({rank.node for rank in gang.ranks}) == 2
        await on_ray.at_step(task.id, 1)
        tell("first step")
        done = await on_ray.ended(task.id)
        tell(f"video {done.state}")
        again = await on_ray.submit("four", prompt="another")
        warm = time.monotonic()
        await on_ray.at_step(again.id, 1)
        warm_s = time.monotonic() - warm
        await on_ray.ended(again.id)
        tell(f"second video; its first step came {warm_s:.1f} s after its submission")
        assert (await on_ray.stores.tasks.get(again.id)).attempt == 1
        await on_ray.asleep(120)
        tell("the gang has left")
        await wait_until(lambda: nodes() == 1, "the nodes to go", 300)
        tell("the head is alone again")
    figures("ray: 0 → nodes → gang → video → 0:\n  " + "\n  ".join(told))


def nodes() -> int:
    return sum(bool(node["Alive"]) for node in ray.nodes())
