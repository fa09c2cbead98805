"""The models that are registered."""

from collections.abc import Sequence
from typing import Protocol

from turnout.domain.serving import ServedModel


class ModelStore(Protocol):
    """A model stays until it is removed."""

    async def put(self, model: ServedModel) -> None:
        """Adds or replaces it."""
        ...

    async def declare(self, models: Sequence[ServedModel]) -> list[str]:
        """Registers the models of the configuration. Removes and returns those that it named before and no longer does.

        A model that was registered by `put` since then no longer belongs to the configuration, and stays.
        """
        ...

    async def was_declared(self) -> bool:
        """Whether `declare` was ever called on this data."""
        ...

    async def names(self) -> frozenset[str]:
        """Of all that are registered, also of those that this version cannot read."""
        ...

    async def all(self) -> dict[str, ServedModel]: ...

    async def get(self, name: str) -> ServedModel:
        """Raises NotFound."""
        ...

    async def remove(self, name: str) -> bool:
        """False when there was none."""
        ...
