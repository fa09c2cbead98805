"""One's own presets in Redis: a hash for each owner, which is a person, or a tenant where a key is nobody's."""

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all, text
from turnout.store.scripts import Script
from turnout.tasks.preset_rules import MAX_PRESETS, Preset

PRESET = RecordKind[Preset]("preset", Preset)

_put_preset = Script("tasks/put_preset")


async def put_preset(link: RedisConnection, *, owner: str, name: str, doc: bytes, most: int) -> bool:
    """False if the owner has `most` others."""
    return bool(await _put_preset.promise(link, owner=owner, name=name, doc=doc, most=most))


class PresetStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._name = link.keys.presets

    async def of(self, owner: str) -> dict[str, Preset]:
        async with translated():
            found = await self._link.client.hgetall(self._name(owner))
        return await read_all(
            self._link, "preset", {text(name): doc for name, doc in found.items()}, PRESET.load
        )

    async def put(self, owner: str, name: str, preset: Preset) -> bool:
        """False when there are too many."""
        return await put_preset(self._link, owner=owner, name=name, doc=PRESET.dump(preset), most=MAX_PRESETS)

    async def remove(self, owner: str, name: str) -> bool:
        """False when there was none."""
        async with translated():
            return bool(await self._link.client.hdel(self._name(owner), name))

    async def forget(self, owner: str) -> None:
        async with translated():
            await self._link.client.delete(self._name(owner))
