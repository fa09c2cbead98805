"""Random bytes and broken JSON in every record that Redis holds: reading goes on, and no error but a known one gets out."""

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any

from tests.conftest import Stores, make_task
from tests.fuzz.runner import cases, check_answer, watched
from tests.gateway.conftest import Gateway, bearer, running

from turnout.domain.errors import NotFound, Stale, Unavailable
from turnout.domain.keys import Role
from turnout.domain.serving import WorkerId
from turnout.domain.tasks import Cancelled, GangId, TaskId, TenantId
from turnout.ports.tasks import Limits

LIMITS = Limits(10**6, 10**6, 10**6)
MODEL, TENANT, WORKER = "m", TenantId("acme"), WorkerId("w")


def garbage(chance: random.Random, sound: bytes | None) -> bytes:
    """Bytes, JSON of the wrong shape, or a sound record with one thing wrong."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(40))
    if kind == 1:
        values: list[Any] = [None, True, 3, -1e308, "x", [], {}, [[]] * 3, {"format": 99}, "\ud800"]
        return json.dumps(chance.choice(values)).encode()
    if kind == 2:
        return b"[" * chance.randrange(1, 5000)
    if not sound:
        return b'{"state":"paused"}'
    try:
        fields = json.loads(sound)
        name = chance.choice(list(fields))
        fields[name] = chance.choice([None, -1, "unheard of", [], {"a": 1}, 10**30])
        return json.dumps(fields).encode()
    except (ValueError, TypeError, IndexError, RecursionError):
        return sound[: len(sound) // 2]


async def spoil(stores: Stores, chance: random.Random, task: TaskId) -> None:
    """Puts garbage into one place of every kind of record."""
    client, keys = stores.link.client, stores.link.keys
    hashes = [
        (keys.task(task), "doc"),
        (keys.models(), MODEL),
        (keys.worker(WORKER), "doc"),
        (keys.heartbeat(WORKER), chance.choice(["doc", "seq"])),
        (keys.orders(WORKER), chance.choice(["doc", "v"])),
        (keys.demand("g"), chance.choice(["doc", "n"])),
        (keys.routes(), MODEL),
        (keys.keys(), "k"),
        (keys.replicas(), "r"),
        (keys.order_versions(), WORKER),
        (keys.manager(), chance.choice(["notes", "statuses", "census"])),
        (keys.decision_counts(), "d:m"),
        (keys.gangs(), "g"),
        (keys.totals(), "queued"),
    ]
    for key, field in hashes:
        await client.hset(key, field, garbage(chance, await client.hget(key, field)))
    await client.sadd(keys.workers(), WORKER, chance.randbytes(4))
    await client.sadd(keys.gateways(), "g", chance.randbytes(4))
    await client.xadd(keys.task_events(task), {"e": garbage(chance, None)})
    await client.xadd(keys.all_events(), {chance.choice(["e", "x"]): garbage(chance, None)})
    await client.xadd(keys.news(), {chance.choice(["w", "z"]): garbage(chance, None)})
    await client.zadd(keys.outbox(), {task: 0, chance.randbytes(4): 0})


async def read_everything(stores: Stores, task: TaskId) -> None:
    """What gateway, manager and gang read in their loops. None of it may stop the next."""
    reads = [
        lambda: stores.tasks.get(task),
        lambda: stores.tasks.page(TENANT, after=None, limit=100, order="desc"),
        lambda: stores.tasks.apply(task, Cancelled(time.time())),
        lambda: stores.events.history(task),
        lambda: anext(aiter(stores.events.tail("0"))),
        lambda: stores.queue.claim(MODEL, GangId("g"), LIMITS),
        lambda: stores.queue.leases(MODEL),
        lambda: stores.queue.release(MODEL, GangId("g"), "x"),
        lambda: stores.backlog.totals(),
        lambda: stores.backlog.unfinished(MODEL, 0),
        lambda: stores.outbox.due(time.time(), 1, 10),
        lambda: stores.models.all(),
        lambda: stores.models.get(MODEL),
        lambda: stores.workers.enrolments(),
        lambda: stores.workers.heartbeats([WORKER]),
        lambda: stores.orders.get(WORKER),
        lambda: stores.demand.all(),
        lambda: anext(aiter(stores.routes.tail())),
        lambda: stores.keys.find("k"),
        lambda: stores.keys.all(),
        lambda: stores.manager_state.saved(),
        lambda: stores.manager_state.wait_changes("0", 0.001),
        lambda: stores.fleet_status.statuses(),
        lambda: stores.fleet_status.figures(),
        lambda: stores.fleet_status.given_up(),
        lambda: stores.gangs.all(),
    ]
    for read in reads:
        try:
            async with asyncio.timeout(10):
                await read()
        except (NotFound, Stale):
            continue
        except Unavailable as err:
            if "newer version" not in str(err):
                raise


async def ask_everything(gateway: Gateway, admin: dict[str, str], task: TaskId) -> None:
    """What people ask about such records: none is answered with 500."""
    for method, path, headers in (
        ("GET", "/v1/videos", {}),
        ("GET", f"/v1/videos/{task}", {}),
        ("POST", f"/v1/videos/{task}/cancel", {}),
        ("DELETE", f"/v1/videos/{task}", {}),
        ("GET", "/v1/models", {}),
        ("GET", f"/v1/models/{MODEL}", admin),
        ("GET", "/v1/keys", admin),
        ("GET", "/workers", admin),
        ("GET", "/metrics", {}),
    ):
        answer = await gateway.http.request(method, path, headers=headers)
        check_answer(answer, (method, path))


async def test_fuzz_records(stores: Stores, tmp_path: Path) -> None:
    async with running(stores, tmp_path) as gateway:
        admin = bearer(await gateway.key(role=Role.ADMIN))
        with watched():
            for chance in cases():
                sound, spoilt = make_task(TENANT, MODEL), make_task(TENANT, MODEL)
                for task in (spoilt, sound):
                    await stores.tasks.submit(task, LIMITS)
                await spoil(stores, chance, spoilt.id)
                if chance.random() < 0.5:
                    await ask_everything(gateway, admin, spoilt.id)
                await read_everything(stores, spoilt.id)
                assert (await stores.tasks.get(sound.id)).spec == sound.spec, "the others are as they were"
        assert not any(gateway.inside.background.restarts().values()), "no loop died"
