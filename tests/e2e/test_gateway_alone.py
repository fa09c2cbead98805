"""A gateway started by itself on a Redis of one's own."""

import asyncio
import os
import secrets
import sys
from pathlib import Path

from tests.pace import patient


async def test_a_gateway_beyond_loopback_without_keys_is_refused(valkey: str, tmp_path: Path) -> None:
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnout", "gateway", "--host", "0.0.0.0", "--port", "0"),
        *("--redis-url", valkey, "--state-dir", str(tmp_path)),
        env={**os.environ, "TURNOUT_REDIS_PREFIX": secrets.token_hex(4)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(gateway.communicate(), patient(60))
    assert gateway.returncode == 2
    assert b"0.0.0.0 is not loopback and there are no keys" in said
