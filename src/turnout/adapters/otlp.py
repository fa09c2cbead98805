"""Spans to an OpenTelemetry receiver, by OTLP over HTTP. The only module that imports opentelemetry.

The SDK's own thread sends what was recorded, every second or when a batch is full. When the receiver is away, it tries again
for a moment and drops; nothing that was recorded is ever waited for. Headers, certificates, time-out and compression come
from the standard variables (`OTEL_EXPORTER_OTLP_HEADERS` …), and so do further attributes (`OTEL_RESOURCE_ATTRIBUTES`).
"""

import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from turnout import __version__
from turnout.domain.trace_context import TraceContext, TraceSpan
from turnout.observe import get_log

_MAX_WAITING = 4096
_BATCH = 512
_EVERY_MS = 1000.0
_FLUSH_S = 3.0
_NAME = "service.name"
_SCOPE = InstrumentationScope("turnout", __version__)
_RECORDED = TraceFlags(TraceFlags.SAMPLED)


class OtlpSpans:
    """`endpoint` is the receiver's URL with its path, such as http://127.0.0.1:4318/v1/traces."""

    def __init__(self, endpoint: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it tells of every try; we tell once
        self._exporter = _CountingExporter(OTLPSpanExporter(endpoint))
        self._processor = BatchSpanProcessor(self._exporter, _MAX_WAITING, _EVERY_MS, _BATCH)
        self._resources: dict[str, Resource] = {}
        self._recorded = self._refused = 0

    @property
    def dropped(self) -> int:
        return self._refused + self._exporter.lost

    def record(self, span: TraceSpan) -> None:
        # The SDK would make room by dropping without a count.
        if self._recorded - self._exporter.seen >= _MAX_WAITING - 1:
            self._refused += 1
            return
        self._recorded += 1
        self._processor.on_end(self._readable(span))

    def close(self, limit_s: float = _FLUSH_S) -> None:
        """Sends what waits. Whoever calls it waits no longer than `limit_s`: the thread ends with the process."""
        ending = threading.Thread(target=self._processor.shutdown, name="spans", daemon=True)
        ending.start()
        ending.join(limit_s)
        unsent = self._recorded - self._exporter.seen + self.dropped
        if unsent:
            get_log().warning("spans were lost", count=unsent)

    def _readable(self, span: TraceSpan) -> ReadableSpan:
        parent = TraceContext(span.context.trace, span.parent, True) if span.parent else None
        return ReadableSpan(
            span.name,
            _context(span.context),
            _context(parent) if parent else None,
            self._resource(span.part),
            span.attributes,
            links=[Link(_context(link)) for link in span.links],
            kind=SpanKind[span.kind.name],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=_nanoseconds(span.began),
            end_time=_nanoseconds(max(span.began, span.ended)),
            instrumentation_scope=_SCOPE,
        )

    def _resource(self, part: str) -> Resource:
        """Each part is a service of its own: turnout-gateway, turnout-gang … `OTEL_SERVICE_NAME` replaces `turnout`."""
        found = self._resources.get(part)
        if found is None:
            given = str(Resource.create().attributes.get(_NAME, ""))
            name = "turnout" if given.startswith("unknown_service") else given
            own = {_NAME: f"{name}-{part}", "service.version": __version__}
            found = self._resources[part] = Resource.create(own)
        return found


class _CountingExporter(SpanExporter):
    """Counts what it was given (`seen`), and what of that was not taken (`lost`)."""

    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self._exporter = exporter
        self._away = False
        self.seen = self.lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        taken = SpanExportResult.FAILURE
        try:
            taken = self._exporter.export(spans)
        finally:
            self.seen += len(spans)
            away = taken is not SpanExportResult.SUCCESS
            self.lost += len(spans) if away else 0
            if away is not self._away:
                get_log().warning("spans are dropped" if away else "spans are taken again")
            self._away = away
        return taken

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _context(context: TraceContext) -> SpanContext:
    return SpanContext(int(context.trace, 16), int(context.span, 16), is_remote=False, trace_flags=_RECORDED)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
