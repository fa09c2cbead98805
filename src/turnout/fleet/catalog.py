"""The registered models as this gateway knows them: read from the store, remembered for a moment."""

from collections.abc import Callable, Mapping, Sequence

from turnout.fleet.model_store import ModelStore
from turnout.fleet.serving import ServedModel, gang_model
from turnout.fleet.video_model_rules import Model

_KEEP_S = 1.0  # a model that was changed or removed is used at most this much longer


class Catalog:
    """`first` are the names that come first, in that order: the models that the configuration declares."""

    def __init__(self, store: ModelStore, first: Sequence[str], now: Callable[[], float]) -> None:
        self._store = store
        self._places = {name: place for place, name in enumerate(first)}
        self._now = now
        self._models: Mapping[str, ServedModel] = {}
        self._videos: list[Model] = []
        self._read_at = float("-inf")

    async def all(self) -> Mapping[str, ServedModel]:
        if self._now() - self._read_at >= _KEEP_S:
            await self._read()
        return self._models

    async def find(self, name: str) -> ServedModel | None:
        """A name that is not remembered is looked up: it may have been registered a moment ago."""
        if name not in await self.all():
            await self._read()
        return self._models.get(name)

    async def videos(self) -> list[Model]:
        """The video models, as gangs know them."""
        await self.all()
        return self._videos

    def invalidate(self) -> None:
        """The next look asks the registry."""
        self._read_at = float("-inf")

    async def _read(self) -> None:
        found = await self._store.all()
        last = len(self._places)
        names = sorted(found, key=lambda name: (self._places.get(name, last), name))
        self._models, self._read_at = {name: found[name] for name in names}, self._now()
        self._videos = [m for name in names if (m := gang_model(found[name])) is not None]
