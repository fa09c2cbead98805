"""What a worker could say: registrations, heartbeats, counts, and messages of a tunnel."""

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from tests.conftest import Stores
from tests.fuzz.runner import altered, cases, check_answer, damaged, watched
from tests.gateways import Gateway, bearer, running

from turnout.errors import Unavailable
from turnout.fleet.worker_rules import TUNNEL
from turnout.tenants.key_rules import Role
from turnout.worker.direct_messages import Announcement, InFlightCounts
from turnout.worker.tunnel.mux import Connection, Kind, Mux

HEARTBEAT: dict[str, Any] = {
    "machine": {"cpus": 2, "memory_bytes": 2**30, "free_memory_bytes": 2**30, "gpus": [], "weights": ["a"]},
    "replicas": [{"id": "r-1", "phase": "ready", "address": "127.0.0.1:1", "busy": 0, "detail": ""}],
    "seen": 0,
    "wait_s": 0,
}
REGISTRATION: dict[str, Any] = {
    "name": "w",
    "url": TUNNEL,
    "probe_key": "k" * 32,
    "machine": HEARTBEAT["machine"],
}
COUNTS = {"seen": 1, "counts": {"r-1": 2}}


class Said:
    """A channel whose other end says odd things, and then hangs up."""

    def __init__(self, messages: list[bytes]) -> None:
        self.messages = messages

    async def send(self, message: bytes) -> None:
        await asyncio.sleep(0)

    async def receive(self) -> bytes:
        await asyncio.sleep(0)
        if not self.messages:
            raise Unavailable("the peer hung up")
        return self.messages.pop(0)


async def closed() -> Connection:
    raise OSError("nobody listens")


def message(chance: random.Random) -> bytes:
    kind = chance.choice((*(int(kind) for kind in Kind), chance.randrange(256)))
    number = chance.choice((0, 1, 2, chance.randrange(2**32)))
    content = chance.choice((b"", b"\0\0\0\1", b"\xff" * 4, b"x" * 32 * 1024, b"x" * 40_000))
    return damaged(bytes((kind,)) + number.to_bytes(4, "big") + content, chance)


async def ask(gateway: Gateway, chance: random.Random, worker: dict[str, str]) -> None:
    register = altered(REGISTRATION, chance)
    if isinstance(register, dict) and register.get("url") not in (None, TUNNEL):
        register["url"] = TUNNEL  # nobody is called from here
    answer = await gateway.http.post("/workers/register", content=json.dumps(register), headers=worker)
    check_answer(answer, register)
    known = answer.json() if answer.status_code == 200 else None
    if known is not None:
        beat = altered(HEARTBEAT, chance)
        if isinstance(beat, dict):
            beat["wait_s"] = 0
        raw = json.dumps(beat).encode()
        answer = await gateway.http.post(
            f"/workers/{known['id']}/heartbeat",
            content=damaged(raw, chance) if chance.random() < 0.3 else raw,
            headers=bearer(known["secret"]),
        )
        check_answer(answer, raw)


async def test_fuzz_workers(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path) as gateway:
        worker = bearer(await gateway.key(role=Role.WORKER))
        with watched():
            for chance in cases():
                await ask(gateway, chance, worker)
                for accept in (None, closed):
                    with suppress(Unavailable):
                        said = [message(chance) for _ in range(chance.randint(1, 20))]
                        await asyncio.wait_for(Mux(Said(said), Kind.END, accept).run(), 10)
                for model, valid in ((InFlightCounts, COUNTS), (Announcement, {"version": 1, "engines": []})):
                    with suppress(ValidationError):
                        model.model_validate_json(
                            damaged(json.dumps(altered(valid, chance)).encode(), chance)
                        )
        admin = bearer(await gateway.key(role=Role.ADMIN))
        for path in ("/workers", "/metrics"):
            assert (await gateway.http.get(path, headers=admin)).status_code == 200
        assert not any(gateway.inside.background.restarts().values()), "no loop died"
