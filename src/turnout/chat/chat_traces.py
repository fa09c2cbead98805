"""Spans of chat requests, named as OpenTelemetry's conventions for generative AI say. No prompt and no answer is in them.

One span for each replica that was tried; a request that waited has the wait below it. An engine that is given our span
puts its own below it.
"""

import time
from asyncio import CancelledError
from dataclasses import replace

from turnout.errors import NotFound, TurnoutError
from turnout.relay import RelayOutcome, RelayRequest, Target
from turnout.telemetry.otlp import OtlpSpans
from turnout.telemetry.request_tracer import RequestTrace, RequestTracer, new_span
from turnout.telemetry.trace_rules import TRACEPARENT, AttributeValue, SpanKind, TraceContext, TraceSpan

_OPERATIONS = {b"/v1/completions": "text_completion", b"/v1/embeddings": "embeddings"}


def begin_chat(
    tracer: RequestTracer, ask: RelayRequest, model: str, tenant: str, began: float
) -> "ChatTrace | None":
    """None for a request that is in no trace. `began` is by the monotonic clock."""
    given: bytes | None = None
    for name, value in ask.headers:
        if name == TRACEPARENT:
            given = value
            break
    trace = tracer.begin(given)
    return None if trace is None else ChatTrace(tracer.sink, trace, ask, model, tenant, began)


class ChatTrace:
    """`line` is the header that the engine gets."""

    __slots__ = (
        "_ask",
        "_began",
        "_clock",
        "_model",
        "_seated",
        "_sink",
        "_tenant",
        "_trace",
        "_tries",
        "line",
    )

    def __init__(
        self, sink: OtlpSpans, trace: RequestTrace, ask: RelayRequest, model: str, tenant: str, began: float
    ) -> None:
        self._sink = sink
        self._trace = trace
        self._ask = ask
        self._model = model
        self._tenant = tenant
        self._began = began
        self._clock = time.time() - time.monotonic()
        self._seated: float | None = None
        self._tries: tuple[TraceContext, ...] = ()
        self.line = b"traceparent: %b\r\n" % trace.context.traceparent.encode()

    @property
    def trace_id(self) -> str:
        return self._trace.context.trace

    def seated(self, now: float) -> None:
        """It has waited, and has a replica now."""
        self._seated = now

    def again(self, now: float) -> None:
        """Another replica is tried: a new span, linked to those before it."""
        context = self._trace.context
        if not context.sampled:
            return
        self._tries += (context,)
        # Below the first one where there is no caller's: a trace has one root.
        self._trace = RequestTrace(
            replace(context, span=new_span()), self._trace.parent or self._tries[0].span
        )
        self._began, self._seated = now, None
        self.line = b"traceparent: %b\r\n" % self._trace.context.traceparent.encode()

    def refused(self, now: float, err: BaseException) -> None:
        """It got no replica."""
        if isinstance(err, NotFound):
            return  # there is no such model: its name is whatever the caller wrote
        code = err.code if isinstance(err, TurnoutError) else None
        self._record(now, {}, code or ("client_gone" if isinstance(err, CancelledError) else "error"))

    def finished(
        self,
        now: float,
        outcome: RelayOutcome,
        first_at: float | None,
        replica: str,
        worker: str,
        target: Target,
    ) -> None:
        attributes: dict[str, AttributeValue] = {
            "gen_ai.response.model": self._model,
            "server.address": target.unix or target.host,
            "turnout.replica": replica,
            "turnout.worker": worker,
        }
        if outcome.status:
            attributes["http.response.status_code"] = outcome.status
        if not target.unix:
            attributes["server.port"] = target.port
        if outcome.usage is not None:
            prompt, completion = outcome.usage
            attributes["gen_ai.usage.input_tokens"] = prompt
            attributes["gen_ai.usage.output_tokens"] = completion
        if first_at is not None and outcome.events:
            attributes["gen_ai.response.time_to_first_chunk"] = first_at - self._began
        failed = outcome.error.value if outcome.error is not None else None
        self._record(now, attributes, failed or (str(outcome.status) if outcome.status >= 400 else None))

    def _record(self, now: float, found: dict[str, AttributeValue], error: str | None) -> None:
        context, operation = self._trace.context, _OPERATIONS.get(self._ask.path, "chat")
        if not context.sampled:
            return
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "turnout",
            "gen_ai.request.model": self._model,
            "turnout.tenant": self._tenant,
            "turnout.request": self._ask.request_id.decode("latin-1"),
            **found,
        }
        if error is not None:
            attributes["error.type"] = error
        began, ended = self._clock + self._began, self._clock + now
        self._sink.record(
            TraceSpan(
                f"{operation} {self._model}",
                "gateway",
                context,
                self._trace.parent,
                began,
                ended,
                attributes,
                SpanKind.CLIENT,
                self._tries[-1:],
                error,
            )
        )
        if self._seated is not None:
            waited = TraceSpan(
                "waiting",
                "gateway",
                replace(context, span=new_span()),
                context.span,
                began,
                self._clock + self._seated,
            )
            self._sink.record(waited)
