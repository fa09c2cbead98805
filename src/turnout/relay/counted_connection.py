"""A client's connection that is counted by address, and refused past the bounds.

A connection from a trusted proxy belongs to the client of its last request, as the proxy names it. While the relay is
leaving, each response asks its client to connect anew.
"""

import asyncio
from functools import partial
from typing import cast

from turnout.errors import Limited, Unavailable
from turnout.relay import error_responses
from turnout.relay.client_connection import ClientConnection
from turnout.relay.connection_counts import group_of
from turnout.relay.framing import Head
from turnout.relay.immediate_write import offer_immediate_write, write_chunk
from turnout.relay.incoming import ReadStage
from turnout.relay.socket_connection import SocketConnection

_TOO_MANY = Limited("Too many connections from this address.", code="too_many_connections")
_CLOSE = (b"connection", b"close")
_FULL = Unavailable("Too many connections.", code="too_many_connections")


class CountedConnection(ClientConnection):
    _counted = False
    _behind_proxy = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        counts = self._context.counts
        counts.end_handshake(self.client)
        host = self.client[0] if self.client else ""
        self._behind_proxy = counts.is_proxy(host)
        self.address = "" if self._behind_proxy else group_of(host)
        self._counted = counts.enter(self.address)
        if not self._counted:
            # At once and without a word with the client: this must cost as little as it can.
            self._stage = ReadStage.CLOSING
            self.transport.write(error_responses.refusal_response(_FULL, self._context.response_lines))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self._counted = False
            self._context.counts.leave(self.address)
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        if self._behind_proxy and self._stage is not ReadStage.CLOSING:
            client = self._context.counts.client_of(self.headers)
            if client is not None and not self._count_as(client):
                return self._refuse(_TOO_MANY)
        super().on_headers_complete()

    def _begin(self, head: Head, body: bytes) -> None:
        super()._begin(head._replace(keep_alive=False) if self._context.leaving else head, body)

    def _pass_to_uvicorn(self, head: Head) -> None:
        before = self.cycle
        super()._pass_to_uvicorn(head)
        if self.cycle is before:
            return  # an upgrade makes none
        offer_immediate_write(self.cycle.scope, partial(write_chunk, self.cycle))
        if self._context.leaving:
            self.cycle.default_headers = [*self.cycle.default_headers, _CLOSE]

    def _count_as(self, client: str) -> bool:
        address, counts = group_of(client), self._context.counts
        if address != self.address:
            counts.leave(self.address)
            self._counted = counts.enter(address)
            self.address = address
        self.client = (client, 0)
        return self._counted

    def handle_websocket_upgrade(self) -> None:
        self._counted = False  # the socket gives it back
        made = partial(SocketConnection, self._context, self.address, self.client)
        self.ws_protocol_class = cast("type[asyncio.Protocol]", made)
        super().handle_websocket_upgrade()
