"""Child processes."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Process(Protocol):
    """One child process, which dies with its owner."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def terminate(self) -> None:
        """Asks it to finish what it must and leave."""
        ...

    def kill(self) -> None:
        """Kills its whole group at once."""
        ...

    def last_words(self) -> str:
        """The last line it printed."""
        ...


class Ranks(Protocol):
    """Starts the ranks of a gang on this machine."""

    async def start(self, number: int, rendezvous: str) -> tuple[Process, int]:
        """One rank, and the pipe (non-blocking, the caller closes it) on which it gives signs of life."""
        ...


class Command(Process, Protocol):
    """A child process whose output is kept."""

    def log_tail(self, limit_bytes: int) -> str:
        """The end of what it printed, from the beginning of a line."""
        ...


class Commands(Protocol):
    """Starts any program as a child process that leads its own process group."""

    async def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str]) -> Command:
        """`name` names its log; `environ` is laid over what is inherited. Raises Unavailable."""
        ...
