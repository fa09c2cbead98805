"""The registered models as this gateway knows them: read from the store, remembered for a moment."""

from collections.abc import Callable, Mapping, Sequence

from turnout.fleet.model_rules import Model
from turnout.fleet.model_store import ModelStore

_KEEP_S = 1.0  # a model that was changed or removed is used at most this much longer


class Catalog:
    """`first` are the names that come first, in that order: the models that the configuration declares."""

    def __init__(self, store: ModelStore, first: Sequence[str], now: Callable[[], float]) -> None:
        self._store = store
        self._places = {name: place for place, name in enumerate(first)}
        self._now = now
        self._models: Mapping[str, Model] = {}
        self._read_at = float("-inf")

    async def all(self) -> Mapping[str, Model]:
        if self._now() - self._read_at >= _KEEP_S:
            await self._read()
        return self._models

    async def find(self, name: str) -> Model | None:
        """A name that is not remembered is looked up: it may have been registered a moment ago."""
        if name not in await self.all():
            await self._read()
        return self._models.get(name)

    async def videos(self) -> list[Model]:
        return [model for model in (await self.all()).values() if model.video is not None]

    def invalidate(self) -> None:
        """The next look asks the registry."""
        self._read_at = float("-inf")

    async def _read(self) -> None:
        found = await self._store.all()
        last = len(self._places)
        names = sorted(found, key=lambda name: (self._places.get(name, last), name))
        self._models, self._read_at = {name: found[name] for name in names}, self._now()
