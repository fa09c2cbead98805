"""One record that cannot be read stops nothing; and records of other versions are read."""

import json
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Stores, make_task

import turnout
from turnout.errors import Unavailable
from turnout.fleet import fleet_records
from turnout.fleet.model_rules import EngineKind
from turnout.fleet.replica_rules import Phase
from turnout.fleet.status_rules import ModelState
from turnout.store.record_kinds import NewerRecord, RecordKind
from turnout.tasks.lease_rules import Overdue
from turnout.tasks.task_records import TASK
from turnout.tasks.task_rules import GangId, Limits, Priority, State, TenantId

LIMITS = Limits(100, 100, 1000)
MODEL = "wan-tiny-t2v"
FIXTURES = Path(__file__).parents[1] / "fixtures" / "records"
KINDS: dict[str, RecordKind[Any]] = {
    kind.name.replace(" ", "_"): kind
    for module in pkgutil.walk_packages(turnout.__path__, "turnout.")
    if module.name.endswith(("_records", "_store", "_log", "_outbox"))
    for kind in vars(import_module(module.name)).values()
    if isinstance(kind, RecordKind)
}


def fixture(version: str, kind: str) -> bytes:
    return (FIXTURES / version / f"{kind}.json").read_bytes()


async def test_a_task_that_cannot_be_read_ends_for_its_owner_and_the_next_one_is_claimed(
    stores: Stores,
) -> None:
    spoilt, sound = make_task(), make_task()
    for task in (spoilt, sound):
        await stores.tasks.submit(task, LIMITS)
    await stores.link.client.hset(stores.link.keys.task(spoilt.id), "doc", b"\xff{")
    claimed = await stores.queue.claim(MODEL, GangId("g"), LIMITS)
    assert claimed and claimed.id == sound.id
    ended = await stores.tasks.get(spoilt.id)
    assert ended.state is State.FAILED
    assert ended.failure and ended.failure.code == "record_unreadable"
    page, _ = await stores.tasks.page(spoilt.tenant, after=None, limit=10, order="asc")
    assert {task.id for task in page} == {spoilt.id, sound.id}
    figures = await stores.backlog.figures(MODEL)
    assert (figures.length, figures.running) == (1, 1)
    dead = await stores.link.client.hgetall(stores.link.keys.dead())
    assert dead == {f"task {spoilt.id}".encode(): b"\xff{"}
    await stores.tasks.forget(ended)


async def test_a_task_with_the_id_of_another_ends_and_leaves_the_other_alone(stores: Stores) -> None:
    spoilt, sound = make_task(), make_task()
    for task in (spoilt, sound):
        await stores.tasks.submit(task, LIMITS)
    key = stores.link.keys.task(spoilt.id)
    record = await stores.link.client.hget(key, "doc")
    await stores.link.client.hset(key, "doc", record.replace(spoilt.id.encode(), sound.id.encode()))
    page, _ = await stores.tasks.page(spoilt.tenant, after=None, limit=10, order="asc")
    assert {task.id: task.state for task in page} == {spoilt.id: State.FAILED, sound.id: State.QUEUED}
    assert await stores.tasks.get(sound.id) == sound


async def test_a_task_of_a_newer_format_is_left_as_it_is(stores: Stores) -> None:
    task = make_task()
    await stores.tasks.submit(task, LIMITS)
    key = stores.link.keys.task(task.id)
    newer = json.dumps({"format": 99, "id": task.id, "what": "else"}).encode()
    await stores.link.client.hset(key, "doc", newer)
    with pytest.raises(Unavailable, match="newer version"):
        await stores.tasks.get(task.id)
    assert await stores.tasks.page(task.tenant, after=None, limit=10, order="asc") == ([], False)
    assert await stores.link.client.hget(key, "doc") == newer


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_the_versions_before_and_after_are_read(kind: str) -> None:
    """`1` is what the first version wrote, `next` what one to come might: new fields, and values without a name here."""
    before, after = (KINDS[kind].load(fixture(version, kind)) for version in ("1", "next"))
    assert type(before) is type(after)
    written = KINDS[kind].dump(before)
    assert KINDS[kind].load(written) == before
    assert b'"format":1' in written or not hasattr(before, "__dataclass_fields__")


def test_values_without_a_name_become_what_does_no_harm() -> None:
    task = KINDS["task"].load(fixture("next", "task"))
    assert task.stage is None and task.priority is Priority.NORMAL
    heartbeat = KINDS["heartbeat"].load(fixture("next", "heartbeat"))
    assert heartbeat.machine.engines == {EngineKind.LLAMACPP}, "engines that it knows"
    assert heartbeat.reports[0].phase is Phase.STARTING, "it takes memory, and no requests"
    statuses = KINDS["statuses"].load(fixture("next", "statuses"))
    assert statuses["tiny"].cause is None and statuses["wan"].state is ModelState.STARTING
    assert KINDS["audit"].load(fixture("next", "audit")).action == "key.frozen", "shown as it is"


@pytest.mark.parametrize("kind", sorted(path.stem for path in (FIXTURES / "beyond").iterdir()))
def test_what_only_a_newer_version_understands_is_left_to_it(kind: str) -> None:
    with pytest.raises(NewerRecord):
        KINDS[kind].load(fixture("beyond", kind))


async def test_a_rollback_stops_at_nothing_and_loses_nothing(stores: Stores) -> None:
    """Everything that a newer version may have written stands there; the older one works on what it understands."""
    client, keys = stores.link.client, stores.link.keys
    newer, sound = make_task(webhook_url="https://example.com"), make_task()
    for task in (newer, sound):
        await stores.tasks.submit(task, LIMITS)
    paused = json.loads(fixture("beyond", "task")) | {"id": newer.id}
    await client.hset(keys.task(newer.id), "doc", json.dumps(paused))
    await client.zadd(keys.outbox(), {newer.id: 0})
    await client.hset(keys.models(), MODEL, fixture("beyond", "model"))
    await client.hset(keys.worker("w-1"), "doc", fixture("beyond", "worker"))
    await client.sadd(keys.workers(), "w-1")
    stored = await client.hgetall(keys.task(newer.id))

    claimed = await stores.queue.claim(MODEL, GangId("g"), LIMITS)
    assert claimed and claimed.id == sound.id, "the next one is rendered"
    assert await stores.queue.holdings(MODEL) == {"g": 1}, "no gang seems to hold the other"
    held = {turn.task: turn for turn in await stores.queue.leases(MODEL)}
    overdue = Overdue(held[newer.id].turn, newer.id, counts=True)
    assert await stores.queue.take_back(overdue) is None
    assert await stores.outbox.due(1.0, 1.0, {}) == []
    assert await stores.fleet.models.names() == {MODEL}, "so its tasks are kept"
    assert await stores.fleet.workers.enrolments() == {} and await stores.fleet.models.all() == {}

    assert await client.sismember(keys.workers(), "w-1") and await client.hexists(keys.models(), MODEL)
    left = await client.hgetall(keys.task(newer.id))
    assert {name: left[name] for name in stored} == stored, "as it was, but for its turn"
    assert not await client.exists(keys.dead())
    # The newer version is back.
    await client.hset(keys.task(newer.id), "doc", TASK.dump(newer))
    back = await stores.queue.take_back(overdue)
    assert back and back.state is State.QUEUED and back.failures == 0


async def test_usage_that_is_no_number_counts_as_none(stores: Stores) -> None:
    day = stores.link.keys.usage_of("2026-11-15", "acme")
    await stores.link.client.hset(
        day, mapping={"requests:m": "many", "prompt_tokens:m": "7", b"\xff": b"\xff"}
    )
    (row,) = await stores.tenants.usage.read(["2026-11-15"], TenantId("acme"))
    assert (row.used.requests, row.used.prompt_tokens) == (0, 7)


async def test_numbers_that_are_none_stop_no_submission_and_no_heartbeat(stores: Stores) -> None:
    client, keys = stores.link.client, stores.link.keys
    first, second = make_task(), make_task()
    await stores.tasks.submit(first, LIMITS)
    await client.set(keys.places(), "far")
    for minute in await client.keys(keys.submissions("acme", "*")):
        await client.set(minute, "often")
    await stores.tasks.submit(second, LIMITS)
    assert [(await stores.queue.claim(MODEL, GangId(g), LIMITS)).id for g in "ab"] == [first.id, second.id]  # type: ignore[union-attr]
    worker = fleet_records.ENROLMENT.load(fixture("1", "worker"))
    await stores.fleet.workers.enrol(worker)
    await client.hset(keys.heartbeat(worker.id), "seq", "late")
    assert await stores.fleet.workers.heard(
        worker.id, fleet_records.HEARTBEAT.load(fixture("1", "heartbeat"))
    )
