"""What is written in Redis is read back."""

import pytest
from pydantic import ValidationError

from turnout.tasks.task_records import EVENT
from turnout.tasks.task_rules import Cancelled, Expired, TaskFailure


@pytest.mark.parametrize("event", [Cancelled(1.0), Expired(2.0, TaskFailure("model_removed", "It is gone."))])
def test_an_event_is_read_as_it_was_written(event: Cancelled | Expired) -> None:
    assert EVENT.load(EVENT.dump(event)) == event


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(ValidationError):
        EVENT.load(b'{"kind": "cancelled", "at": "soon"}')
