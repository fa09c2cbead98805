"""Other hosts: URLs that users name, and tunnels to workers."""

from collections.abc import Callable, Mapping
from typing import Protocol

from turnout.domain.serving import WorkerId


class Fetcher(Protocol):
    """HTTP to URLs that users name. Private addresses are refused unless the configuration allows them.

    Raises InvalidRequest with code `url_not_allowed` or `url_unreachable`, TooLarge past `max_bytes`.
    """

    async def check(self, url: str) -> None:
        """Raises for a URL that could not be fetched: bad syntax, an address that is not public, an unknown host."""
        ...

    async def get(self, url: str, max_bytes: int) -> bytes: ...

    async def get_with_address(self, url: str, max_bytes: int) -> tuple[str, bytes]:
        """The same, with the address that answered: who names the URL cannot make it lead elsewhere later."""
        ...

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer; redirects are not followed."""
        ...


class Channel(Protocol):
    """Messages both ways, in order. Both raise Unavailable once it is closed."""

    async def send(self, message: bytes) -> None: ...
    async def receive(self) -> bytes: ...


class Tunnels(Protocol):
    """Ways to workers that nobody can reach. `changed` is called when `url` may answer otherwise."""

    changed: Callable[[], None]

    def url(self, worker: WorkerId) -> str | None:
        """Where to find a worker that holds a tunnel to us."""
        ...

    async def hold(self, worker: WorkerId, channel: Channel) -> None:
        """Carries connections through the channel until it is closed."""
        ...
