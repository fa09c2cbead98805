"""A real receiver of OTLP over HTTP on loopback: decodes what comes with OpenTelemetry's own messages, and draws traces."""

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Seen:
    """A span as it came. `service` is its resource's name; ids are in hexadecimal."""

    trace: str
    id: str
    parent: str
    name: str
    service: str
    kind: int
    began: float
    ended: float
    attributes: dict[str, Any]
    links: tuple[str, ...]
    error: str | None


class Receiver:
    """`spans` are those that came so far, `headers` those of the last request. `status` is what it answers."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.headers: dict[str, str] = {}
        self.status = 200
        self.endpoint = ""

    def take(self, body: bytes) -> None:
        for of in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _attributes(of.resource.attributes)["service.name"]
            for scope in of.scope_spans:
                for span in scope.spans:
                    failed = span.status.code == Status.STATUS_CODE_ERROR
                    self.spans.append(
                        Seen(
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.name,
                            service,
                            span.kind,
                            span.start_time_unix_nano / 1e9,
                            span.end_time_unix_nano / 1e9,
                            _attributes(span.attributes),
                            tuple(link.span_id.hex() for link in span.links),
                            span.status.message if failed else None,
                        )
                    )

    def named(self, name: str) -> list[Seen]:
        return sorted((s for s in self.spans if s.name == name), key=lambda span: span.began)

    def tree(self, trace: str) -> list[str]:
        """The trace as lines: each span below its parent, by time. Spans without a parent here are roots."""
        below: dict[str, list[Seen]] = defaultdict(list)
        mine = [span for span in self.spans if span.trace == trace]
        known = {span.id for span in mine}
        for span in mine:
            below[span.parent if span.parent in known else ""].append(span)
        return list(_lines(below, "", 0))


def _lines(below: dict[str, list[Seen]], parent: str, depth: int) -> Iterator[str]:
    for span in sorted(below[parent], key=lambda one: (one.began, one.ended)):
        number = span.attributes.get("turnout.step") or (
            span.attributes["turnout.attempt"] if span.name == "attempt" else ""
        )
        words = [span.name, str(number), f"! {span.error}" if span.error else ""]
        yield "  " * depth + " ".join(word for word in words if word)
        yield from _lines(below, span.id, depth + 1)


def _attributes(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pair: KeyValue
    for pair in pairs:
        value: AnyValue = pair.value
        found[pair.key] = getattr(value, value.WhichOneof("value") or "string_value")
    return found


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.headers = {name.lower(): value for name, value in self.headers.items()}
            if receiver.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if receiver.status == 200:
                receiver.take(body)
            self.send_response(receiver.status)
            self.send_header("content-type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
