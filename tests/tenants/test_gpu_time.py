"""Reports of GPU time are booked once, in whatever order and however often they come."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from turnout.tenants.gpu_time_rules import GpuCell, GpuReport, GpuState, cell_of, gpu_kind, unbooked

BUSY = GpuCell(GpuState.BUSY, "NVIDIA X", "org/model:7b")


def test_a_name_is_read_as_it_was_written() -> None:
    assert cell_of(BUSY.name) == BUSY
    for name in ("", "busy", "busy:x", "lazy:x:m", "busy:x:" + "m" * 300, "busy:x:m\n", "work::m"):
        assert cell_of(name) is None
    assert gpu_kind("A:B\n C") == "A B C"
    assert gpu_kind("") == "gpu"
    assert gpu_kind("X" * 65) == "X" * 64
    longest = "busy:x:" + "m" * 233
    assert cell_of(longest) is not None and cell_of(longest + "m") is None


def test_only_what_is_new_is_booked() -> None:
    first, second = GpuReport("e", {BUSY.name: 100}), GpuReport("e", {BUSY.name: 250, "idle:x:m": 5})
    assert unbooked(first, None) == {}, "a stranger may be old: what was booked of it is not known"
    assert unbooked(second, first) == {BUSY: 150, GpuCell(GpuState.IDLE, "x", "m"): 5}
    assert unbooked(first, second) == unbooked(first, first) == {}
    assert unbooked(GpuReport("e", {BUSY.name: 2**52}), first) == {BUSY: 2**52 - 100}
    assert unbooked(GpuReport("new", {BUSY.name: 30}), second) == {BUSY: 30}
    assert unbooked(GpuReport("e", {BUSY.name: 2**60, "nonsense": 7}), first) == {}


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_lost_and_repeated_reports_and_managers_that_die_change_no_sum(
    steps: list[int], lost: list[bool], died: list[bool]
) -> None:
    """A manager that dies before it has written has booked nothing; the next one goes on from what is written."""
    written, total, booked = GpuReport("e", {BUSY.name: 0}), 0, Counter[GpuCell]()
    for step, is_lost, dies in zip(steps, lost, died, strict=False):
        total += step
        report = GpuReport("e", {BUSY.name: total})
        for _ in range(2):  # repeated
            if not is_lost and not dies:
                booked.update(unbooked(report, written))
                written = report
    booked.update(unbooked(GpuReport("e", {BUSY.name: total}), written))
    assert booked[BUSY] == total
