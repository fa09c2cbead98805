"""Random bytes and broken JSON in every record that Redis holds: reading goes on, and no error but a known one gets out."""

import asyncio
import json
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conftest import Stores, make_task
from tests.fuzz.runner import cases, check_answer, watched
from tests.gateways import Gateway, bearer, running

from turnout.chat.quota_rules import ChatLimits, ShareRequest
from turnout.errors import Newer, NotFound, Stale, Unavailable
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.worker_rules import StoredHeartbeat
from turnout.tasks.task_rules import Cancelled, GangId, Limits, TaskId, TenantId
from turnout.telemetry.history_store import HistoryStore
from turnout.tenants.key_rules import Role
from turnout.tenants.usage_rules import UsageRow, Used

LIMITS = Limits(10**6, 10**6, 10**6)
MODEL, TENANT, WORKER = "m", TenantId("acme"), WorkerId("w")
HEARTBEAT = StoredHeartbeat(Machine((), 1, 1))
DAY = "2026-11-15"
REFUSALS = ("webhook secret cannot be read", "not an integer", "not a float", "not a valid float")
RECORDS = sorted((Path(__file__).parents[1] / "fixtures" / "records").rglob("*.json"))


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
        (keys.counts(TENANT), chance.choice(["running", "waiting"])),
        (keys.shares(task), "s"),
        (keys.session("s-1"), chance.choice(["key", "parent"])),
        (keys.webhook_secrets(), TENANT),
        (keys.webhook_messages(), task),
        (keys.usage_of(DAY, TENANT), "requests:m"),
        (keys.history(1), "wakes"),
        (keys.manager_loops(), "fleet"),
        (keys.chat_account(TENANT), chance.choice(["at", "r", "t", "by:g"])),
        (keys.chat_permits(TENANT), "g"),
        (keys.bound(MODEL), "1-1"),
    ]
    for key, field in hashes:
        await client.hset(key, field, garbage(chance, await client.hget(key, field) or sound(chance)))
    for key in (keys.places(), keys.clock(MODEL), keys.webhook_tries(task), keys.login_code("d")):
        await client.set(key, garbage(chance, None))
    await client.sadd(keys.workers(), WORKER, chance.randbytes(4))
    await client.sadd(keys.gateways(), "g", chance.randbytes(4))
    await client.xadd(keys.task_events(task), {"e": garbage(chance, None)})
    await client.xadd(keys.all_events(), {chance.choice(["e", "x"]): garbage(chance, None)})
    await client.xadd(keys.news(), {chance.choice(["w", "z"]): garbage(chance, None)})
    await client.xadd(keys.audit(), {"entry": garbage(chance, sound(chance))})
    await client.sadd(keys.usage_day(DAY), TENANT, chance.randbytes(4))
    await client.sadd(keys.queues(), MODEL, chance.randbytes(4))
    await client.zadd(keys.outbox(), {task: 0, chance.randbytes(4): 0})


def sound(chance: random.Random) -> bytes:
    """A record of any kind and version."""
    return chance.choice(RECORDS).read_bytes()


async def first_event(stores: Stores) -> None:
    """There is none when the stream itself was put aside."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await anext(aiter(stores.events.tail("0")))


async def read_everything(stores: Stores, task: TaskId) -> None:
    """What gateway, manager and gang read in their loops. None of it may stop the next."""
    reads = [
        lambda: stores.tasks.get(task),
        lambda: stores.tasks.page(TENANT, after=None, limit=100, order="desc"),
        lambda: stores.tasks.apply(task, Cancelled(time.time())),
        lambda: stores.events.history(task),
        lambda: first_event(stores),
        lambda: stores.queue.claim(MODEL, GangId("g"), LIMITS),
        lambda: stores.queue.leases(MODEL),
        lambda: stores.queue.release(MODEL, GangId("g"), "x"),
        lambda: stores.backlog.totals(),
        lambda: stores.backlog.unfinished(MODEL, 0),
        lambda: stores.outbox.due(time.time(), 1, {}),
        lambda: stores.fleet.models.all(),
        lambda: stores.fleet.models.get(MODEL),
        lambda: stores.fleet.workers.enrolments(),
        lambda: stores.fleet.workers.heartbeats([WORKER]),
        lambda: stores.fleet.orders.get(WORKER),
        lambda: stores.fleet.demand.all(),
        lambda: anext(aiter(stores.fleet.routes.tail())),
        lambda: stores.tenants.keys.find("k"),
        lambda: stores.tenants.keys.all(),
        lambda: stores.fleet.manager_state.saved(),
        lambda: stores.fleet.manager_state.wait_changes("0", 0.001),
        lambda: stores.fleet.status.statuses(),
        lambda: stores.fleet.status.figures(),
        lambda: stores.fleet.status.given_up(),
        lambda: stores.fleet.gangs.all(),
        lambda: stores.tenants.keys.find("s-1"),
        lambda: stores.tenants.sessions.take_code("d"),
        lambda: stores.share_links.of(task),
        lambda: stores.webhook_secrets.find(TENANT),
        lambda: stores.tenants.audit.newest(10),
        lambda: stores.tenants.usage.read([DAY]),
        lambda: stores.tenants.usage.add("b", [UsageRow(DAY, TENANT, MODEL, Used(requests=1))]),
        lambda: HistoryStore(stores.link).read([1]),
        lambda: stores.data.manager_loops(),
        lambda: stores.data.prove_write(),
        lambda: stores.dead_records.names(),
        lambda: stores.backlog.figures(MODEL),
        lambda: stores.backlog.by_tenant(MODEL),
        lambda: stores.backlog.models(),
        lambda: stores.queue.holdings(MODEL),
        lambda: stores.outbox.again(task, 0),
        lambda: stores.fleet.workers.heard(WORKER, HEARTBEAT),
        lambda: stores.fleet.demand.report("g", {}),
        lambda: stores.tenants.quotas.lease("g", TENANT, ChatLimits(10, 10, 10), ShareRequest(1, 1, 0, 1), 1),
        lambda: stores.mutex.hold("manager", "x", 1),
        lambda: stores.fleet.models.declare([]),
    ]
    for read in reads:
        try:
            async with asyncio.timeout(10):
                await read()
        except (NotFound, Stale, Newer):
            pass
        except Unavailable as err:
            if not any(known in str(err) for known in REFUSALS):
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
