"""A Redis client that goes on when a key is not of the type that its name says, or a count is no number.

Such a key is useless to every version, and would stop what uses it for ever. It is moved aside, as an unreadable record
is, and the command is run again as if there were none. A script cannot be run again, because it may have done half of its
work: all keys are looked through, and its caller, who is told that Redis is unavailable, asks again.
"""

import time
from collections.abc import Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.client import Pipeline, Redis
from redis.exceptions import ResponseError

from turnout.store.key_names import KeyNames
from turnout.telemetry.log import get_log

log = get_log()

_KEPT_S = 30 * 86_400
_LOOK_EVERY_S = 10.0
_AT_ONCE = 1_000
_NO_NUMBER = ("not an integer", "not a float", "not a valid float")


class MendingClient(Redis):
    def __init__(self, keys: KeyNames, pool: Any) -> None:
        cast("Any", super()).__init__(connection_pool=pool)
        self._keys = keys
        self._looked_at = float("-inf")

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            return await self._plain(*args, **options)
        except ResponseError as err:
            if not await self.mended(args, err):
                raise
        return await self._plain(*args, **options)

    async def execute_together(self, *commands: Sequence[Any]) -> list[Any]:
        """Sends commands at once on one connection. An error stands among the answers, where it is one."""
        pool = cast("Any", self.connection_pool)
        connection = await pool.get_connection()
        try:
            await connection.send_packed_command([_packed(command) for command in commands])
            answers = [await self._answer(connection, command[0]) for command in commands]
        finally:
            await pool.release(connection)
        for place, answer in enumerate(answers):
            if isinstance(answer, ResponseError) and await self.mended(tuple(commands[place]), answer):
                answers[place] = await self.execute_command(*commands[place])
        return answers

    async def _answer(self, connection: Any, verb: Any) -> Any:
        try:
            return await cast("Any", self).parse_response(connection, verb)
        except ResponseError as err:
            return err

    async def _plain(self, *args: Any, **options: Any) -> Any:
        """As redis-py does it, but for what we do not use: retries, and figures for its telemetry. They cost more than the
        rest. A connection that failed, or whose answer nobody waited for, has disconnected itself."""
        pool = cast("Any", self.connection_pool)
        connection = await pool.get_connection()
        try:
            await connection.send_packed_command(_packed(args))
            return await cast("Any", self).parse_response(connection, args[0], **options)
        finally:
            await pool.release(connection)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        return _MendingPipeline(self, transaction)

    async def mended(self, command: tuple[Any, ...], err: ResponseError) -> bool:
        """Whether what the server complained of is gone now, and the command can be run again."""
        said, verb = str(err), str(command[0])
        if any(words in said for words in _NO_NUMBER) and verb.startswith(("HINCRBY", "INCR")):
            await (self._plain("HDEL", *command[1:3]) if verb[0] == "H" else self._plain("DEL", command[1]))
            return True
        if "WRONGTYPE" not in said:
            return False
        if "script:" in said:  # as the server says where it was
            await self._look_through()
            return False
        named = [one.decode() if isinstance(one, bytes) else one for one in command[1:]]
        return await self._set_aside([n for n in named if isinstance(n, str) and self._keys.owns(n)])

    async def _look_through(self) -> None:
        if time.monotonic() - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        cursor: Any = 0
        while True:
            cursor, found = await self._plain(
                "SCAN", cursor, "MATCH", self._keys.pattern(), "COUNT", _AT_ONCE
            )
            await self._set_aside([name.decode(errors="replace") for name in found])
            if int(cursor) == 0:
                return

    async def _set_aside(self, names: list[str]) -> bool:
        """Moves those of the wrong type; False if all were right."""
        names = [name for name in names if self._keys.type_of(name)]
        pipe = cast("Any", super()).pipeline(transaction=False)
        for name in names:
            pipe.type(name)
        wrong = [
            (name, kind.decode())
            for name, kind in zip(names, await pipe.execute(), strict=True)
            if kind.decode() not in ("none", self._keys.type_of(name))
        ]
        for name, kind in wrong:
            kept = self._keys.misplaced(name)
            await self._plain("RENAME", name, kept)
            await self._plain("EXPIRE", kept, _KEPT_S)
            own = self._keys.without_prefix(name)
            note = f"a {kind} in place of a {self._keys.type_of(name)}; moved to {kept} for 30 days"
            if name != self._keys.dead():
                await self.execute_command("HSETNX", self._keys.dead(), f"key {own}", note)
            log.error("key of the wrong type was set aside", key=own, type=kind, kept=kept)
        return bool(wrong)


def _packed(command: Sequence[Any]) -> bytes:
    """As it goes to the server; `CONFIG GET` and the like are two words there."""
    return cast("Any", hiredis).pack_command((*command[0].split(), *command[1:]))


class _MendingPipeline(Pipeline):
    def __init__(self, client: MendingClient, transaction: bool) -> None:
        cast("Any", super().__init__)(client.connection_pool, client.response_callbacks, transaction, None)
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands = list(self.command_stack)
        answers: list[Any] = await super().execute(raise_on_error=False)
        for place, answer in enumerate(answers):
            if isinstance(answer, ResponseError):
                args, options = cast("Any", commands[place])
                if await self._client.mended(args, answer):
                    answers[place] = await self._client.execute_command(*args, **options)
                elif raise_on_error:
                    raise answer
        return answers

    async def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            return await cast("Any", super()).immediate_execute_command(*args, **options)
        except ResponseError as err:
            if not await self._client.mended(args, err):
                raise
        return await cast("Any", super()).immediate_execute_command(*args, **options)
