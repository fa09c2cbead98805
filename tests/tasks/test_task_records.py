"""What is written in Redis is read back, also when an earlier version wrote it."""

import json

import pytest
from pydantic import ValidationError

from turnout.tasks.task_records import EVENT
from turnout.tasks.task_rules import NOBODY_TOOK_IT, Cancelled, Expired, TaskFailure


@pytest.mark.parametrize("event", [Cancelled(1.0), Expired(2.0, TaskFailure("model_removed", "It is gone."))])
def test_an_event_is_read_as_it_was_written(event: Cancelled | Expired) -> None:
    assert EVENT.load(EVENT.dump(event)) == event


def test_ends_that_earlier_versions_wrote_still_load() -> None:
    def earlier(**fields: object) -> object:
        return EVENT.load(json.dumps({"at": 3.0, **fields}).encode())

    assert earlier(kind="expired", reason=None) == Expired(3.0, NOBODY_TOOK_IT)
    assert earlier(kind="expired", reason="no GPU") == Expired(3.0, TaskFailure("unplaceable", "no GPU"))
    removed = {"code": "model_removed", "message": "It is gone."}
    assert earlier(kind="dismissed", failure=removed) == Expired(3.0, TaskFailure(**removed))


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(ValidationError):
        EVENT.load(b'{"kind": "cancelled", "at": "soon"}')
