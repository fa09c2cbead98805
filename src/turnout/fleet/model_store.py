"""The registered models in Redis: one hash, and a set of those that the configuration declared."""

from collections.abc import Sequence
from typing import Any

from turnout.errors import no_such
from turnout.fleet.fleet_records import MODEL
from turnout.fleet.manager_news import tell_manager
from turnout.fleet.model_rules import Model
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import number, read_all, read_one, text

_MARK = ""  # is among the declared names, also when the configuration has no models


class ModelStore:
    """A model stays until it is removed."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._models = link.keys.models()
        self._declared = link.keys.declared()

    async def put(self, model: Model) -> None:
        """Adds or replaces it."""
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(self._models, model.name, MODEL.dump(model))
            pipe.srem(self._declared, model.name)
            tell_manager(self._link, pipe, "m", model.name)
            await pipe.execute()

    async def change(self, model: Model) -> None:
        """Replaces it where it is; one that the configuration declared still belongs to it."""
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(self._models, model.name, MODEL.dump(model))
            tell_manager(self._link, pipe, "m", model.name)
            await pipe.execute()

    async def declare(self, models: Sequence[Model]) -> list[str]:
        """Registers the models of the configuration. Removes and returns those that it named before and no longer does.

        A model that was registered by `put` since then no longer belongs to the configuration, and stays.
        """
        named = {model.name: MODEL.dump(model) for model in models}

        async def change(pipe: Any) -> list[str]:
            before = {text(name) for name in await pipe.smembers(self._declared)} - {_MARK}
            gone = sorted(before - named.keys())
            pipe.multi()
            if gone:
                pipe.hdel(self._models, *gone)
                pipe.srem(self._declared, *gone)
            if named:
                pipe.hset(self._models, mapping=named)
            pipe.sadd(self._declared, _MARK, *named)
            for name in (*gone, *named):
                tell_manager(self._link, pipe, "m", name)
            return gone

        async with translated():
            return await self._client.transaction(change, self._declared, value_from_callable=True)

    async def was_declared(self) -> bool:
        """Whether `declare` was ever called on this data."""
        async with translated():
            return bool(await self._client.exists(self._declared))

    async def names(self) -> frozenset[str]:
        """Of all that are registered, also of those that this version cannot read."""
        async with translated():
            return frozenset(map(text, await self._client.hkeys(self._models)))

    async def all(self) -> dict[str, Model]:
        async with translated():
            found = await self._client.hgetall(self._models)
        named = {text(name): doc for name, doc in sorted(found.items())}
        return await read_all(self._link, MODEL, named)

    async def get(self, name: str) -> Model:
        """Raises NotFound."""
        async with translated():
            doc = await self._client.hget(self._models, name)
        model = await read_one(self._link, MODEL, name, doc)
        if model is None:
            raise no_such("model", name)
        return model

    async def jobs_made(self, name: str) -> int:
        """The highest number that a job of the model ever had."""
        async with translated():
            return number(await self._client.hget(self._link.keys.jobs_made(), name))

    async def keep_jobs_made(self, name: str, highest: int) -> None:
        async with translated():
            await self._client.hset(self._link.keys.jobs_made(), name, highest)

    async def remove(self, name: str) -> bool:
        """False when there was none."""
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hdel(self._models, name)
            pipe.srem(self._declared, name)
            tell_manager(self._link, pipe, "m", name)
            return bool((await pipe.execute())[0])
