"""ASGI middleware around every route: the bound on bodies, the headers of every answer, unexpected errors."""

import time
from dataclasses import replace

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.error_table import INTERNAL_ERROR
from turnout.errors import Unavailable
from turnout.gateway.bodies import body_too_large
from turnout.gateway.problems import respond_to, to_response
from turnout.relay.body_budget import SMALL_BODY_BYTES, BodyBudget
from turnout.relay.request_ids import new_request_id
from turnout.telemetry.log import get_log, name_request
from turnout.telemetry.request_tracer import RequestTrace, RequestTracer
from turnout.telemetry.trace_rules import TRACEPARENT, SpanKind, TraceSpan, read_traceparent
from turnout.tenants.open_connections import caller_of

STANDARD_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
"""Of every answer that does not set them itself. As ASGI has them: names in lower case."""

TRACE = "traceparent"
"""Where in a request's state it is told in which trace it is, if it is in one."""
_TRACED = ("/v1/", "/generate")  # what users ask for, not what watches over the service
_OF_GANGS = "/v1/gangs"


class BodyLimit:
    """Refuses a body over `max_bytes`, also one that does not say its length, and large bodies while those of all requests
    together, or of the same tenant, take too much memory."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_bytes_in_all: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._bodies = BodyBudget(max_bytes_in_all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        declared = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if declared.isdigit() and int(declared[:20]) > self._max_bytes:
            return await respond_to(body_too_large(self._max_bytes))(scope, receive, send)
        seen, charged = 0, dict[str, int]()

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                seen += size
                caller = caller_of(scope) if seen > SMALL_BODY_BYTES else None
                account = "" if caller is None else caller.turn
                fits = self._bodies.fits(account, size) or seen <= SMALL_BODY_BYTES
                charged[account] = charged.get(account, 0) + size
                self._bodies.add(account, size)
                if seen > self._max_bytes:
                    raise body_too_large(self._max_bytes)  # inside the app, where errors become answers
                if not fits:
                    raise Unavailable("Too many large requests at once.", code="bodies_full")
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            for account, size in charged.items():
                self._bodies.remove(account, size)


class StandardHeaders:
    """Adds the headers that a response does not set itself, and an id of the request that its logs have, too. Tells `tracer`
    of the requests that are traced."""

    def __init__(self, app: ASGIApp, tracer: RequestTracer | None = None) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        request_id, status, began = new_request_id().decode(), 0, time.time()
        given = next((value for name, value in scope["headers"] if name == TRACEPARENT), None)
        path = scope["path"]
        traced = path.startswith(_TRACED) and not path.startswith(_OF_GANGS) and scope["method"] != "OPTIONS"
        trace = begin_trace(self._tracer if traced else None, given)
        if trace is not None:
            scope.setdefault("state", {})[TRACE] = trace.context.traceparent
        name_request(request_id, trace.context.trace if trace else None)

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                own = (
                    (b"x-request-id", request_id.encode()),
                    *STANDARD_HEADERS,
                )  # what the relay answered has an id
                message["headers"] = headers + [one for one in own if one[0] not in given]
            await send(message)

        try:
            await self._app(scope, receive, guarded)
        finally:
            if trace is not None and trace.context.sampled and self._tracer is not None:
                route = str(getattr(scope.get("route"), "path", "unmatched"))
                span = request_span(scope["method"], route, trace, request_id, status, began)
                self._tracer.sink.record(span)


def begin_trace(tracer: RequestTracer | None, traceparent: bytes | None) -> RequestTrace | None:
    """A request's trace: ours, or the caller's, which its log lines and its task name then."""
    if tracer is not None:
        return tracer.begin(traceparent)
    context = None if traceparent is None else read_traceparent(traceparent.decode("latin-1"))
    return None if context is None else RequestTrace(replace(context, sampled=False), None)


def request_span(
    method: str, route: str, trace: RequestTrace, request_id: str, status: int, began: float
) -> TraceSpan:
    return TraceSpan(
        f"{method} {route}" if route != "unmatched" else "unmatched",
        "gateway",
        trace.context,
        trace.parent,
        began,
        time.time(),
        {"http.route": route, "http.response.status_code": status, "turnout.request": request_id},
        SpanKind.SERVER,
        error=str(status or "cut") if status >= 500 or not status else None,
    )


class UnexpectedErrors:
    """Answers 500 to an error that nobody foresaw. The framework would do so outside of all other middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return  # it hung up in the middle of its body: nobody is there to be told
        except Exception as err:
            if started:
                raise  # the server cuts the connection: that is all a client can be told now
            get_log().error("request failed", method=scope["method"], path=scope["path"], exc_info=err)
            await to_response(INTERNAL_ERROR)(scope, receive, send)
