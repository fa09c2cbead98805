"""Pulls in Redis: one hash. Gateways write what is asked for, the one that pulls how far it is."""

from turnout.fleet.pull_rules import MAX_PULLS, ModelPull, PullState
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all, read_one, text
from turnout.store.scripts import Script

PULL = RecordKind[ModelPull]("pull", ModelPull)

_put_pull = Script("fleet/put_pull")


async def put_pull(link: RedisConnection, *, id: str, doc: bytes, only_if: str, most: int) -> bool:
    """False if there are `most` others, or it is not in the state `only_if`."""
    return bool(await _put_pull.run(link, id=id, doc=doc, only_if=only_if, most=most))


class PullStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def all(self) -> list[ModelPull]:
        async with translated():
            found = await self._link.client.hgetall(self._link.keys.pulls())
        docs = {text(name): doc for name, doc in found.items()}
        pulls = (await read_all(self._link, PULL, docs)).values()
        return sorted(pulls, key=lambda pull: pull.asked_at, reverse=True)

    async def find(self, pull_id: str) -> ModelPull | None:
        async with translated():
            found = await self._link.client.hget(self._link.keys.pulls(), pull_id)
        return await read_one(self._link, PULL, pull_id, found)

    async def put(self, pull: ModelPull, only_if: PullState | None = None) -> bool:
        """False when there are too many, or it is in another state than `only_if`."""
        return await put_pull(
            self._link, id=pull.id, doc=PULL.dump(pull), only_if=only_if or "", most=MAX_PULLS
        )

    async def forget(self, pull_id: str) -> None:
        async with translated():
            await self._link.client.hdel(self._link.keys.pulls(), pull_id)
