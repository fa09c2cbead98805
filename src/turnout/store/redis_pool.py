"""The connections to Redis: at most so many, and whoever finds none free waits for one, in order.

redis-py's BlockingConnectionPool does the same with a condition, two timers and figures for its own telemetry, and took more
CPU than the command that the connection was for.
"""

import asyncio
from typing import Any, cast

from redis.asyncio import ConnectionPool as PlainPool
from redis.asyncio.sentinel import SentinelConnectionPool


class WaitingPool(PlainPool):
    def __init__(self, *args: Any, max_connections: int, wait_s: float, **kwargs: Any) -> None:
        cast("Any", super()).__init__(*args, max_connections=max_connections, **kwargs)
        self._slots = asyncio.Semaphore(max_connections)
        self._wait_s = wait_s

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Any:
        """Raises TimeoutError when none became free."""
        if self._slots.locked():
            async with asyncio.timeout(self._wait_s):
                await self._slots.acquire()
        else:
            await self._slots.acquire()  # does not wait
        connection: Any = None
        try:
            connection = cast("Any", self).get_available_connection()
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        try:
            if connection is not None:
                cast("Any", self)._in_use_connections.remove(connection)
                if connection.should_reconnect():
                    await connection.disconnect()
                cast("Any", self)._available_connections.append(connection)
        finally:
            self._slots.release()


class WaitingSentinelPool(SentinelConnectionPool, WaitingPool):
    """Asks the Sentinels for the primary at each new connection."""
