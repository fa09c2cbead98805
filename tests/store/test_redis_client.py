"""A key of the wrong type is told, and stops only what needs it."""

import pytest
from structlog.testing import capture_logs
from tests.conftest import Stores, make_task

from turnout.errors import Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.tasks.task_rules import Limits

LIMITS = Limits(100, 100, 1000)


async def test_a_key_of_the_wrong_type_is_unavailable_and_a_line_in_the_log(stores: Stores) -> None:
    client, keys = stores.link.client, stores.link.keys
    await client.rpush(keys.models(), "not a hash")
    await client.set(keys.heartbeat("w"), "not a hash either")
    await client.set(keys.queue("wan-tiny-t2v"), "no stream")
    with capture_logs() as lines:
        for by_itself_in_a_pipeline_in_a_script in (
            stores.fleet.models.all(),
            stores.fleet.workers.heartbeats([WorkerId("w")]),
            stores.tasks.submit(make_task(), LIMITS),
        ):
            with pytest.raises(Unavailable, match="WRONGTYPE"):
                await by_itself_in_a_pipeline_in_a_script
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("redis key has the wrong type", "error")
    ] * 3
    assert keys.models() in lines[0]["command"]
    assert keys.heartbeat("w") in lines[1]["error"]
    assert await client.lrange(keys.models(), 0, -1) == [b"not a hash"], "nobody touches it"
