"""What `./dev test` reads to try alone what failed beside other tests."""

import subprocess
import sys
from pathlib import Path

from tests.pace import patient

SCENE = """
import pytest

@pytest.mark.xdist_group("shared")
def test_in_a_group():
    assert False

@pytest.mark.parametrize("address", ["ann@example.com"])
def test_with_a_parameter(address):
    assert False

@pytest.fixture
def broken():
    raise OSError

def test_whose_fixture_breaks(broken):
    pass

def test_that_passes():
    pass
"""
PLUGINS = ("-p", "tests.nodeid_setter", "-p", "tests.failed_list", "-p", "no:cacheprovider")


def test_failed_tests_are_listed_by_ids_that_pytest_takes(tmp_path: Path) -> None:
    (tmp_path / "test_scene.py").write_text(SCENE)
    listed, again = tmp_path / "listed", tmp_path / "again"

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), *PLUGINS, *arguments]
        done = subprocess.run(
            command, check=False, cwd=Path(__file__).parents[1], timeout=patient(120), capture_output=True
        )
        assert done.returncode == 1, done.stdout

    run("-n", "1", "--dist", "loadgroup", "--failed-to", str(listed), str(tmp_path / "test_scene.py"))
    ids = listed.read_text().splitlines()
    assert [test.partition("::")[2] for test in ids] == [
        "test_in_a_group",
        "test_with_a_parameter[ann@example.com]",
        "test_whose_fixture_breaks",
    ]
    run(
        "--failed-to",
        str(again),
        *(str(tmp_path / "test_scene.py") + "::" + test.partition("::")[2] for test in ids),
    )
    assert again.read_text() == listed.read_text()
