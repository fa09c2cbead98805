"""A pytest plugin for `./dev mutants`: mutmut 3.8 reads a private name of test items that pytest 9.2 no longer has."""

import pytest

if not hasattr(pytest.Item, "_nodeid"):
    pytest.Item._nodeid = property(lambda item: item.nodeid)  # pyright: ignore
