"""How long to wait before the next try. Pure."""

_MAX_DOUBLINGS = 30


def backoff_s(failures: int, first_s: float, longest_s: float, chance: float = 1.0) -> float:
    """The pause after `failures` failures in a row: `first_s` after the first, then twice as long each time, up to
    `longest_s`. `chance` in [0, 1] spreads it from half of that to all of it, so that many do not come back at once."""
    doublings = min(max(failures - 1, 0), _MAX_DOUBLINGS)
    return min(longest_s, first_s * 2**doublings) * (0.5 + chance / 2)
