"""Which requests are traced: those whose caller traces them, and a share of those whose caller says nothing."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from turnout.telemetry.otlp import OtlpSpans
from turnout.telemetry.trace_rules import TraceContext, read_traceparent


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """`context` is the request's own span; if it is not sampled, the caller's, which is passed on as it is. `parent` is the
    caller's span."""

    context: TraceContext
    parent: str | None


class RequestTracer:
    def __init__(self, sink: OtlpSpans, sample: float, chance: Callable[[], float] = random.random) -> None:
        self.sink = sink
        self._sample = sample
        self._chance = chance

    def begin(self, traceparent: bytes | None) -> RequestTrace | None:
        """None for a request that is in no trace."""
        given = None if traceparent is None else read_traceparent(traceparent.decode("latin-1"))
        if given is None:
            if self._chance() >= self._sample:
                return None
            return RequestTrace(TraceContext(f"{random.getrandbits(128) or 1:032x}", new_span(), True), None)
        if not given.sampled:
            return RequestTrace(given, None)
        return RequestTrace(TraceContext(given.trace, new_span(), True), given.span)


def new_span() -> str:
    return f"{random.getrandbits(64) or 1:016x}"
