"""What is only slow does not fail, and what hangs does."""

import time

import pytest

from tests.conftest import wait_until
from tests.pace import Patience, slowness


def test_a_loaded_or_slow_machine_gets_more_time_and_a_fast_one_what_was_asked_for() -> None:
    assert slowness(lambda: None, lambda: 0.1) == 1.0
    assert slowness(lambda: None, lambda: 19.0) == 19.0
    assert slowness(lambda: None, lambda: 1000.0) == 20.0, "there is an end"
    assert slowness(lambda: time.sleep(0.1), lambda: 0.1) >= 5.0


async def test_a_wait_lasts_as_much_longer_as_the_machine_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [1.0]
    patience = Patience(0.0, lambda: slow[0])
    assert patience.lost
    slow[0] = 1e9
    patience = Patience(1e-9, lambda: slow[0])
    assert not patience.lost
    monkeypatch.setattr("tests.pace._MOST", 1.0)
    with pytest.raises(pytest.fail.Exception, match=r"waited .* for what never comes"):
        await wait_until(lambda: False, "what never comes", 0.01)
