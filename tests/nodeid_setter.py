"""A pytest plugin: pytest-xdist 3.8 and mutmut 3.8 use a private name of test items that pytest 9.2 no longer has. Without it
xdist's groups do nothing, and each of its processes starts what tests share."""

import pytest

if not hasattr(pytest.Item, "_nodeid"):
    from _pytest.nodeid import NodeId

    def _rename(item: pytest.Item, name: str) -> None:
        item._id = NodeId.parse(name)  # pyright: ignore

    pytest.Item._nodeid = property(lambda item: item.nodeid, _rename)  # pyright: ignore
