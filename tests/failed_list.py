"""A pytest plugin: `--failed-to FILE` writes the ids of the tests that failed, a line each, so that `./dev test` can try them alone."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failed-to", type=Path, metavar="FILE", help="where to list the tests that failed")


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.getoption("--failed-to")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailedList(file))


class _FailedList:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            test, group, name = report.nodeid.rpartition("@")  # xdist puts a test's group behind its id
            self._failed[test if group and "]" not in name and "::" not in name else report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self._file.write_text("".join(f"{test}\n" for test in self._failed))
