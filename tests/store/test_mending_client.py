"""A key of the wrong type is moved aside, and what uses it goes on."""

import inspect
import re

import pytest
from tests.conftest import Stores, make_task

from turnout.errors import Unavailable
from turnout.fleet.serving import EngineKind, ServedModel
from turnout.store.key_names import KeyNames
from turnout.tasks.task_rules import GangId, Limits, TenantId

LIMITS = Limits(100, 100, 1000)
MODEL = "wan-tiny-t2v"


def test_the_type_of_every_key_is_as_its_description_says() -> None:
    keys = KeyNames("p")
    words = {"Hash": "hash", "Stream": "stream", "Set": "set", "Sorted set": "zset"}
    named = {"misplaced", "pattern", "without_prefix", "with_prefix", "lasting", "owns", "type_of"}
    for name in dir(keys):
        method = None if name in named or name.startswith("_") else getattr(keys, name)
        if not inspect.ismethod(method):
            continue
        key = method(*(["1"] * len(inspect.signature(method).parameters)))
        said = re.match(r"Sorted set|\w+", method.__doc__ or "")
        assert said and keys.type_of(key) == words.get(said[0], "string"), key


async def test_reads_and_writes_go_on(stores: Stores) -> None:
    client, keys = stores.link.client, stores.link.keys
    await client.set(keys.heartbeat("w"), "not a hash")
    await client.sadd(keys.workers(), "w")
    assert await stores.workers.heartbeats(["w"]) == {}  # type: ignore[list-item]
    await client.rpush(keys.models(), "not a hash either")
    model = ServedModel("tiny", EngineKind.LLAMACPP, "/tiny.gguf")
    await stores.models.put(model)
    assert await stores.models.all() == {"tiny": model}
    await client.set(keys.declared(), "no set")
    await stores.models.declare([model])
    names = [("key", name) for name in ("fleet:beat:w", "fleet:declared", "fleet:models")]
    assert await stores.dead_records.names() == names
    note = await stores.dead_records.find("key", "fleet:models")
    assert note == f"a list in place of a hash; moved to {keys.misplaced(keys.models())} for 30 days".encode()
    assert await client.lrange(keys.misplaced(keys.models()), 0, -1) == [b"not a hash either"]


async def test_a_script_works_when_it_is_asked_again(stores: Stores) -> None:
    client, keys = stores.link.client, stores.link.keys
    other = f"{keys.prefix}:of-a-newer-version"
    await client.rpush(other, "kept")
    await client.set(keys.queue(MODEL), "no stream")
    await client.set(keys.counts("acme"), "no hash")
    task = make_task()
    with pytest.raises(Unavailable, match="WRONGTYPE"):
        await stores.tasks.submit(task, LIMITS)
    await stores.tasks.submit(task, LIMITS)
    claimed = await stores.queue.claim(MODEL, GangId("g"), LIMITS)
    assert claimed and claimed.id == task.id
    assert await client.type(other) == b"list", "keys that this version does not know are not touched"
    assert len(await stores.dead_records.names()) == 2


async def test_a_task_of_the_wrong_type_is_gone_and_the_list_goes_on(stores: Stores) -> None:
    lost, sound = make_task(), make_task()
    for task in (lost, sound):
        await stores.tasks.submit(task, LIMITS)
    key = stores.link.keys.task(lost.id)
    await stores.link.client.delete(key)
    await stores.link.client.set(key, "x")
    page, _ = await stores.tasks.page(TenantId("acme"), after=None, limit=10, order="asc")
    assert [task.id for task in page] == [sound.id]
    claimed = await stores.queue.claim(MODEL, GangId("g"), LIMITS) or await stores.queue.claim(
        MODEL, GangId("g"), LIMITS
    )
    assert claimed and claimed.id == sound.id
