"""An ASGI extension: bytes that are written to a client at once, by whoever has them.

The usual way, a coroutine of the connection's own task through every layer of the app, costs several times as much as the
system call. It is meant for one message to many clients, that was framed once for all of them.
"""

from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_NAME = "turnout.immediate_write"

ImmediateWrite: TypeAlias = Callable[[bytes], bool]
"""Takes whole messages as they are on the wire. False: nothing was written, because the response has not begun or has ended, or
because the client reads too slowly; then the app sends it the usual way, which waits."""


def offer_immediate_write(scope: object, write: ImmediateWrite) -> None:
    cast("MutableMapping[str, Any]", scope).setdefault("extensions", {})[_NAME] = write


def immediate_write(scope: Scope) -> ImmediateWrite | None:
    """None where the server does not have it."""
    extensions: dict[str, Any] = scope.get("extensions", {})
    return cast("ImmediateWrite | None", extensions.get(_NAME))


def write_chunk(cycle: RequestResponseCycle, chunk: bytes) -> bool:
    """Writes a chunk of a response that has no length."""
    if not cycle.response_started or not cycle.chunked_encoding or cycle.response_complete:
        return False
    if cycle.disconnected or cycle.flow.write_paused or cycle.transport.is_closing():
        return False
    cycle.transport.write(chunk)
    return True
