"""How long ranks wait for each other is a setting."""

import pytest
from tests.ports import free_port

from turnout.gang.group import _meeting
from turnout.gang.rank_place import RankPlace


def test_a_rank_that_meets_nobody_gives_up_after_the_configured_time() -> None:
    place = RankPlace(1, 2, 0, f"tcp://127.0.0.1:{free_port()}")  # nobody listens there
    with pytest.raises(RuntimeError, match=r"(?i)time|connect"):
        _meeting(place, 0.5)
