"""How much may be asked for in a day. Pure.

Beside the limits of tenants, which bound what is asked for at once, a person may have a number of videos and chats for each day
(UTC). Whoever is admitted brings its allowances along; they are counted where the request is."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from turnout.errors import Limited

DAY_S = 86_400
Counted: TypeAlias = Literal["videos", "chats"]
Bounded: TypeAlias = Counted | Literal["guests", "ways in"]
WAYS_IN_A_DAY = 1000
"""So many sessions, login codes, keys and secrets anybody but an admin makes in a day. Each is stored, and an entry of the audit log
that has room for so many: without a bound one caller could push all others' out of it."""
A_GUESTS_WAYS_IN = 20
A_WORKER_KEYS_WAYS_IN = 2000
"""So many workers register in a day by one key, each time they start."""


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """None: as many as the tenant's limits let through."""

    videos: int | None = None
    chats: int | None = None

    def of(self, what: Counted) -> int | None:
        return self.videos if what == "videos" else self.chats


@dataclass(frozen=True, slots=True)
class Allowance:
    """`account` is who has it: a person, or a network that guests come from."""

    account: str
    limits: DailyLimits


def limits_on(allowances: tuple[Allowance, ...], what: Counted) -> list[tuple[str, int]]:
    """(account, how many)… of those that bound it."""
    found = ((one.account, one.limits.of(what)) for one in allowances)
    return [(account, most) for account, most in found if most is not None]


def over_allowance(what: Bounded, most: int, now: float) -> Limited:
    asked = {
        "guests": f"{most} guests may come from one address",
        "ways in": f"You may make {most} sessions, codes, keys, secrets and workers",
    }.get(what, f"You may ask for {most} {what}")
    return Limited(
        f"{asked} in a day; the day ends at 00:00 UTC.",
        code="daily_limit",
        retry_after_s=DAY_S - now % DAY_S,
    )
