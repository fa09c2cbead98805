"""Pauses between tries."""

from hypothesis import given
from hypothesis import strategies as st

from turnout.backoff import backoff_s


def test_pauses_double_up_to_a_bound() -> None:
    delays = [backoff_s(n, 0.2, 10.0) for n in range(1, 2000)]
    assert delays[:4] == [0.2, 0.4, 0.8, 1.6]
    assert delays == sorted(delays)
    assert delays[-1] == 10.0


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_chance_shortens_a_pause_by_half_at_most(failures: int, chance: float) -> None:
    whole = backoff_s(failures, 0.2, 10.0)
    assert whole / 2 <= backoff_s(failures, 0.2, 10.0, chance) <= whole
