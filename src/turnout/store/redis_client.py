"""redis-py's client without what we do not use: retries, and figures for its own telemetry. They cost more than the rest."""

from collections.abc import Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.client import Redis
from redis.exceptions import ResponseError


class PlainClient(Redis):
    """A connection that failed, or whose answer nobody waited for, has disconnected itself."""

    def __init__(self, pool: Any) -> None:
        cast("Any", super()).__init__(connection_pool=pool)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        pool = cast("Any", self.connection_pool)
        connection = await pool.get_connection()
        try:
            await connection.send_packed_command(_packed(args))
            return await cast("Any", self).parse_response(connection, args[0], **options)
        except ResponseError as err:
            err.add_note(" ".join(str(word)[:200] for word in args[:2]))  # the server does not say which key
            raise
        finally:
            await pool.release(connection)

    async def execute_together(self, *commands: Sequence[Any]) -> list[Any]:
        """Sends commands at once on one connection. An error stands among the answers, where it is one."""
        pool = cast("Any", self.connection_pool)
        connection = await pool.get_connection()
        try:
            await connection.send_packed_command([_packed(command) for command in commands])
            return [await self._answer(connection, command[0]) for command in commands]
        finally:
            await pool.release(connection)

    async def _answer(self, connection: Any, verb: Any) -> Any:
        try:
            return await cast("Any", self).parse_response(connection, verb)
        except ResponseError as err:
            return err


def _packed(command: Sequence[Any]) -> bytes:
    """As it goes to the server; `CONFIG GET` and the like are two words there."""
    return cast("Any", hiredis).pack_command((*command[0].split(), *command[1:]))
