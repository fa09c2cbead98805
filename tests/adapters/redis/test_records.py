"""One record that cannot be read stops nothing; and records of other versions are read."""

import json
from pathlib import Path

import pytest
from tests.conftest import Stores, make_task

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


@pytest.mark.parametrize("path", sorted(FIXTURES.rglob("*.json")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_records_of_every_version_are_read(path: Path) -> None:
    record = LOADERS[path.stem](path.read_bytes())
    if path.stem == "task" and path.parent.name == "next":
        assert record.stage is None and record.priority is Priority.NORMAL  # type: ignore[union-attr]
