"""A route that the relay asks before ASGI: it does here what the middleware does for the others.

The app has the route, too: for forms, and for its document. The way through server, middleware and framework took a third of
a submission's CPU.
"""

import time
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TypeAlias

from turnout.error_table import INTERNAL_ERROR, ErrorAnswer
from turnout.errors import TurnoutError
from turnout.gateway.middleware import STANDARD_HEADERS, begin_trace, request_span
from turnout.gateway.problems import logged
from turnout.relay import RelayAnswer, RelayRequest
from turnout.telemetry.log import get_log, name_request
from turnout.telemetry.metrics import RequestFigures
from turnout.telemetry.request_tracer import RequestTracer
from turnout.telemetry.trace_rules import TRACEPARENT

Endpoint: TypeAlias = Callable[[RelayRequest, str | None], Awaitable[tuple[bytes, dict[str, str]]]]
"""Takes the request and its traceparent; gives a JSON body and headers."""

_RELAYS_OWN = b"x-content-type-options"
_LINES = b"".join([b"%b: %b\r\n" % header for header in STANDARD_HEADERS if header[0] != _RELAYS_OWN])


class HotRoute:
    """`path` is the route's name in metrics and traces."""

    def __init__(
        self, path: str, endpoint: Endpoint, figures: RequestFigures, tracer: RequestTracer | None
    ) -> None:
        self.path = path
        self._endpoint = endpoint
        self._figures = figures
        self._tracer = tracer

    async def __call__(self, ask: RelayRequest) -> RelayAnswer:
        began, began_at = perf_counter(), time.time()
        given = next((value for name, value in ask.headers if name == TRACEPARENT), None)
        trace = begin_trace(self._tracer, given)
        request_id = ask.request_id.decode()
        name_request(request_id, trace.context.trace if trace else None)
        status = 0
        try:
            answer = await self._answer(ask, trace.context.traceparent if trace else None)
            status = answer.status
            self._figures.answered("POST", self.path, status, perf_counter() - began)
            return answer
        finally:
            if trace is not None and trace.context.sampled and self._tracer is not None:
                span = request_span("POST", self.path, trace, request_id, status, began_at)
                self._tracer.sink.record(span)

    async def _answer(self, ask: RelayRequest, traceparent: str | None) -> RelayAnswer:
        try:
            body, headers = await self._endpoint(ask, traceparent)
        except TurnoutError as err:
            return _refusal(logged(err))
        except Exception as err:  # noqa: BLE001 - whatever went wrong, the client is told
            get_log().error("request failed", method="POST", path=self.path, exc_info=err)
            return _refusal(INTERNAL_ERROR)
        return RelayAnswer(200, _lines(headers), body)


def _refusal(answer: ErrorAnswer) -> RelayAnswer:
    return RelayAnswer(answer.status, _lines(answer.headers), answer.body)


def _lines(headers: dict[str, str]) -> bytes:
    return _LINES + "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode()
