"""What is open at this gateway, by whose right it is open: the id of a key, or of a worker."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager

from turnout.errors import TurnoutError

_Close = Callable[[], None]


class OpenConnections:
    """`close` ends all that is held by an owner. Each holder says itself how it is closed."""

    def __init__(self) -> None:
        self._open: defaultdict[str, set[_Close]] = defaultdict(set)

    @property
    def owners(self) -> Collection[str]:
        return self._open.keys()

    @contextmanager
    def hold(self, owner: str, close: _Close) -> Generator[None]:
        """`close` is called if the owner loses its right before the context ends. It must not wait or raise."""
        self._open[owner].add(close)
        try:
            yield
        finally:
            self._open[owner].discard(close)
            if not self._open[owner]:
                del self._open[owner]

    @asynccontextmanager
    async def within(self, owner: str, err: TurnoutError) -> AsyncGenerator[None]:
        """Cancels what runs in it, and raises `err`, if the owner loses its right."""
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                with self.hold(owner, lambda: None if limit.expired() else limit.reschedule(loop.time())):
                    yield
        except TimeoutError:
            if limit.expired():
                raise err from None
            raise

    def close(self, owners: Collection[str]) -> None:
        for owner in owners:
            for close in tuple(self._open.get(owner, ())):
                close()
