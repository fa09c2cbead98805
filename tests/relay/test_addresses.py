"""The relay looks up no names: what a name meant when it was checked is what is called."""

import pytest
from tests.relay.kit import Replica, echo

from turnout.relay import Target, UpstreamLimits
from turnout.relay.upstream import ConnectionPool


async def test_a_name_is_called_at_the_address_that_was_checked() -> None:
    replica = Replica(echo)
    await replica.start()
    pool = ConnectionPool(UpstreamLimits(), None)
    port = replica.target.port
    try:
        with pytest.raises(OSError, match=r"known|[Nn]ame"):
            await pool.connect(pool.of(Target("localhost", port)))
        named = pool.of(Target("worker.invalid", port, address="127.0.0.1"))
        connection = await pool.connect(named)
        connection.abort()
        assert named.host == b"worker.invalid:%d" % port, "the worker is asked by its name all the same"
        (await pool.connect(pool.of(Target("127.0.0.1", port)))).abort()
    finally:
        pool.close()
        replica.stop()
