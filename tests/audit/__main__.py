"""`python -m tests.audit`: tries to do harm to a running service, in minutes, and prints a table of what held."""

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from tests.audit.probes import AREAS, T2V, TI2V
from tests.audit.scene import Account, Scene
from tests.service import running_service
from websockets.exceptions import WebSocketException

MODELS = {
    "rogue": {
        "engine": "command",
        "model_name": "rogue",
        "command": [sys.executable, str(Path(__file__).with_name("rogue_engine.py")), "{port}"],
    },
    T2V: {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v", "runner": "external"},
    TI2V: {"weights": "builtin:wan-tiny-ti2v", "family": "wan-tiny-ti2v", "runner": "external"},
}


async def audit(home: Path, chosen: set[str]) -> Account:
    account, began = Account(), time.monotonic()
    settings = {"allow_private_urls": True, "limit_submits_per_minute": 1000, "models": MODELS}
    async with running_service(home, **settings) as service:
        scene = Scene(service, account)
        for area in AREAS:
            if not chosen or area.__name__ in chosen:
                try:
                    await area(scene)
                except (httpx.HTTPError, OSError, pytest.fail.Exception, WebSocketException) as err:
                    account.say(area.__name__, "broke off", False, repr(err))
                print(f"{time.monotonic() - began:6.0f} s  {area.__name__}", file=sys.stderr, flush=True)
    return account


def main() -> int:
    home = Path(tempfile.mkdtemp(prefix="audit-"))
    try:
        account = asyncio.run(audit(home, set(sys.argv[1:])))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(account.table())
    return 1 if account.broken else 0


if __name__ == "__main__":
    sys.exit(main())
