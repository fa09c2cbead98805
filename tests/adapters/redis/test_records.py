"""One record that cannot be read stops nothing; and records of other versions are read."""

import json
from pathlib import Path

import pytest
from tests.conftest import Stores, make_task
from tests.fuzz.records import fuzz_on

from turnout.domain.errors import Unavailable
from turnout.domain.tasks import GangId, Priority, State
from turnout.ports.tasks import Limits
from turnout.schemas.fleet_records import MODEL as MODEL_RECORD
from turnout.schemas.task_records import load_event, load_key, load_task

LIMITS = Limits(100, 100, 1000)
MODEL = "wan-tiny-t2v"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "records"
LOADERS = {
    "task": load_task,
    "event": load_event,
    "key": load_key,
    "model": MODEL_RECORD.validate_json,
}


@pytest.mark.timeout(120)
async def test_garbage_in_every_kind_of_record_lets_nothing_out(stores: Stores) -> None:
    assert await fuzz_on(stores, 10, 20261, rounds=40)


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


@pytest.mark.parametrize("path", sorted(FIXTURES.rglob("*.json")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_records_of_every_version_are_read(path: Path) -> None:
    record = LOADERS[path.stem](path.read_bytes())
    if path.stem == "task" and path.parent.name == "next":
        assert record.stage is None and record.priority is Priority.NORMAL  # type: ignore[union-attr]
