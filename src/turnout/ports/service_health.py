"""Whether the data is there and can be written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """How the server of the data is: how long an answer took, what it holds, and what it may hold (its own limit, or the
    machine's memory; 0 if it does not tell)."""

    ping_s: float
    memory_bytes: int
    memory_limit_bytes: int
    clients: int


class DataHealth(Protocol):
    async def load(self) -> ServerLoad: ...

    async def prove_write(self) -> None:
        """Writes as a submission does. Raises Unavailable that says, without addresses, why that fails; with the code
        `data_lost` when the data is not what this process began with."""
        ...

    async def check_data(self) -> None:
        """Raises Unavailable with the code `data_lost` as above; otherwise nothing, also when nobody answers."""
        ...

    async def manager_loops(self) -> dict[str, str]:
        """How the manager's background loops are, as it told a moment ago."""
        ...


class LoopReports(Protocol):
    async def report_loops(self, states: Mapping[str, str]) -> None: ...
