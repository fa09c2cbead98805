"""A pytest plugin: of xdist's processes the first alone imports torch, and runs every test that needs it.

To import torch and diffusers takes 9 s of CPU, and all processes collect all tests. So the others leave out those folders, and
get no work from them. A process that stands in for one that died collects everything.
"""

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

_FOLDERS = ("engines", "training")
_TESTS = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.parent == _TESTS and collection_path.name in _FOLDERS and _leaves_out(config):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name in _FOLDERS:
            item.add_marker(pytest.mark.xdist_group("torch"))


def _leaves_out(config: pytest.Config) -> bool:
    own: dict[str, Any] = getattr(config, "workerinput", {})
    return own.get("workerid") in {f"gw{n}" for n in range(1, int(own.get("workercount", 0)))}


class TorchInOne(LoadGroupScheduling):
    """The tests with torch are the largest group, which the process with the most tests gets first."""

    def schedule(self) -> None:
        if self.collection is None:
            by_size = sorted(self.registered_collections.items(), key=lambda one: -len(one[1]))
            self.registered_collections = dict(by_size)  # the first one counts as the list of all tests
            self.assigned_work = {node: self.assigned_work[node] for node in self.registered_collections}
        super().schedule()

    def _check_nodes_have_same_collection(self) -> bool:
        every, *rest = (set(collected) for collected in self.registered_collections.values())
        return all(some <= every for some in rest) or super()._check_nodes_have_same_collection()

    def _assign_work_unit(self, node: Any) -> None:
        own = self.registered_collections[node]
        scope = next((name for name, unit in self.workqueue.items() if next(iter(unit)) in own), None)
        if scope is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    return TorchInOne(config, log) if config.getvalue("dist") == "loadgroup" else None
