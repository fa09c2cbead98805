"""One's own presets in Redis: a hash for each owner, which is a person, or a tenant where a key is nobody's."""

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all, text
from turnout.store.scripts import Script
from turnout.tasks.preset_rules import MAX_PRESETS, Preset
from turnout.tenants.caller import right_ended

PRESET = RecordKind[Preset]("preset", Preset)

_put_preset = Script("tasks/put_preset", "people/staying")


async def put_preset(link: RedisConnection, *, owner: str, name: str, doc: bytes, most: int) -> int:
    """1, 0 if the owner has `most` others, or -1 if she is gone."""
    return int(await _put_preset.promise(link, owner=owner, name=name, doc=doc, most=most))


class PresetStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._name = link.keys.presets

    async def of(self, owner: str) -> dict[str, Preset]:
        async with translated():
            found = await self._link.client.hgetall(self._name(owner))
        return await read_all(self._link, PRESET, {text(name): doc for name, doc in found.items()})

    async def put(self, owner: str, name: str, preset: Preset) -> bool:
        """False when there are too many. Raises Unauthorized for a person who is gone."""
        done = await put_preset(self._link, owner=owner, name=name, doc=PRESET.dump(preset), most=MAX_PRESETS)
        if done < 0:
            raise right_ended()
        return bool(done)

    async def remove(self, owner: str, name: str) -> bool:
        """False when there was none."""
        async with translated():
            return bool(await self._link.client.hdel(self._name(owner), name))

    async def forget(self, owner: str) -> None:
        async with translated():
            await self._link.client.delete(self._name(owner))
