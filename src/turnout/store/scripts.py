"""How Redis runs our scripts. Each lies in the room of what it writes, beside its one call site: a function of the same name
with named arguments and a typed answer."""

import re
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

from turnout.store.connection import RedisConnection, translated

Argument = str | bytes | int | float


class Script:
    """`path` is that of a script inside of the package, without its ending; `parts` are those of functions that it uses.
    Its first statement, `local a, b = unpack(ARGV)`, names its arguments: they are passed by name, and `rest` follows them."""

    def __init__(self, path: str, *parts: str) -> None:
        source = _read(path)
        found = re.search(r"^local ([\w,\s]+?) = unpack\(ARGV\b", source, re.MULTILINE)
        if found is None:
            raise ValueError(f"{path}.lua does not name its arguments")
        self._names = tuple(re.split(r",\s*", found[1]))
        self._source = "".join(_read(part) for part in ("store/names", *parts)) + source
        self._sha = sha1(self._source.encode(), usedforsecurity=False).hexdigest()

    async def run(self, link: RedisConnection, rest: Sequence[Argument] = (), **named: Argument) -> Any:
        return await self._run(link.client.execute_command, link, rest, named)

    async def promise(self, link: RedisConnection, rest: Sequence[Argument] = (), **named: Argument) -> Any:
        """As `run`; what it wrote is as safe as the settings ask when this returns."""
        return await self._run(link.promise, link, rest, named)

    async def _run(
        self,
        execute: Callable[..., Awaitable[Any]],
        link: RedisConnection,
        rest: Sequence[Argument],
        named: dict[str, Argument],
    ) -> Any:
        arguments = [named.pop(name) for name in self._names]
        if named:
            raise TypeError(f"no such arguments: {', '.join(named)}")
        keys_and_arguments = (1, link.keys.prefix, *arguments, *rest)
        async with translated():
            try:
                return await execute("EVALSHA", self._sha, *keys_and_arguments)
            except NoScriptError:
                return await execute("EVAL", self._source, *keys_and_arguments)


def _read(path: str) -> str:
    return files("turnout").joinpath(f"{path}.lua").read_text()


_hold_mutex = Script("store/hold_mutex")


async def hold_mutex(link: RedisConnection, *, name: str, owner: str, ttl_ms: int) -> bool:
    """Takes or renews a right; False when another holds it."""
    return bool(await _hold_mutex.run(link, name=name, owner=owner, ttl_ms=ttl_ms))


_prove_write = Script("store/prove_write")


async def prove_write(link: RedisConnection, *, fresh: str) -> str:
    """Writes something, and returns the id of this data; empty when there is none and `fresh` is empty."""
    return (await _prove_write.run(link, fresh=fresh)).decode(errors="replace")
