"""Spans to an OpenTelemetry receiver, by OTLP over HTTP.

A thread sends what was recorded, every two seconds or when a batch is full. When the receiver is away, it tries again for a
moment and drops; nothing that was recorded is ever waited for. Headers, certificates, time-out and compression come from the
standard variables (`OTEL_EXPORTER_OTLP_HEADERS` …), and so do further attributes (`OTEL_RESOURCE_ATTRIBUTES`).
"""

import gzip
import os
import ssl
import threading
from collections import deque
from collections.abc import Mapping
from urllib.parse import unquote

import httpx

from turnout import __version__
from turnout.errors import Misconfigured
from turnout.telemetry.log import get_log
from turnout.telemetry.span_messages import resource_message, span_message
from turnout.telemetry.trace_rules import TraceSpan

_MAX_WAITING = 4096
_BATCH = 512
_EVERY_S = 2.0
_FLUSH_S = 3.0
_TIMEOUT_S, _MAX_TIMEOUT_S = 10.0, 60.0  # some SDKs take the variable as milliseconds
_RETRY_AFTER_S = (0.5, 2.0)
_RETRIED = frozenset({429, 502, 503, 504})
_NAME = "service.name"
_SCOPE = "turnout"


class OtlpSpans:
    """`endpoint` is the receiver's URL with its path, such as http://127.0.0.1:4318/v1/traces. `environ` has the standard
    variables."""

    def __init__(self, endpoint: str, environ: Mapping[str, str] = os.environ) -> None:
        """Raises Misconfigured."""
        self._endpoint = endpoint
        self._resource = _pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        self._service = environ.get("OTEL_SERVICE_NAME") or self._resource.get(_NAME, "turnout")
        self._headers = {
            "content-type": "application/x-protobuf",
            "user-agent": f"turnout/{__version__}",
            **{name.lower(): value for name, value in _pairs(_setting(environ, "HEADERS")).items()},
        }
        self._gzip = _setting(environ, "COMPRESSION") == "gzip"
        if self._gzip:
            self._headers["content-encoding"] = "gzip"
        self._http = _client(environ)
        self._waiting: deque[tuple[str, bytes]] = deque()  # the part, and its span
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None  # begins with the first span: a fork would not have it
        self._away = False
        self.dropped = 0

    def record(self, span: TraceSpan) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append((span.part, span_message(span)))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
            self._thread.start()
        elif len(self._waiting) >= _BATCH:
            self._wake.set()

    def close(self, limit_s: float = _FLUSH_S) -> None:
        """Sends what waits. Whoever calls it waits no longer than `limit_s`: the thread ends with the process."""
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(limit_s)
        unsent = len(self._waiting) + self.dropped
        if unsent:
            get_log().warning("trace spans lost at exit", count=unsent)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.wait(_EVERY_S)
            self._wake.clear()
            self._send_waiting()
        self._send_waiting()
        self._http.close()

    def _send_waiting(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            self._tell(taken := self._send(self._request(batch)))
            self.dropped += 0 if taken else len(batch)

    def _request(self, batch: list[tuple[str, bytes]]) -> bytes:
        """Each part is a service of its own: turnout-gateway, turnout-gang … `OTEL_SERVICE_NAME` replaces `turnout`."""
        messages: list[bytes] = []
        for part in dict.fromkeys(part for part, _ in batch):
            resource = {
                **self._resource,
                _NAME: f"{self._service}-{part}",
                "service.version": __version__,
            }
            spans = [span for of, span in batch if of == part]
            messages.append(resource_message(resource, _SCOPE, __version__, spans))
        body = b"".join(messages)
        return gzip.compress(body) if self._gzip else body

    def _send(self, body: bytes) -> bool:
        for wait_s in (*_RETRY_AFTER_S, None):
            try:
                status = self._http.post(self._endpoint, content=body, headers=self._headers).status_code
            except (httpx.HTTPError, OSError):
                status = 503
            except (httpx.InvalidURL, ValueError) as err:  # of a variable: no header, no port
                get_log().warning("trace spans cannot be sent", reason=str(err))
                return False
            if status not in _RETRIED:
                return status < 300
            if wait_s is None or self._ending.wait(wait_s):
                break
        return False

    def _tell(self, taken: bool) -> None:
        if taken is self._away:
            get_log().warning(
                "trace receiver takes spans again"
                if taken
                else "trace receiver takes no spans, dropping them"
            )
        self._away = not taken


def _client(environ: Mapping[str, str]) -> httpx.Client:
    try:
        timeout_s = min(_MAX_TIMEOUT_S, float(_setting(environ, "TIMEOUT") or _TIMEOUT_S))
        tls = ssl.create_default_context(cafile=_setting(environ, "CERTIFICATE") or None)
        if certificate := _setting(environ, "CLIENT_CERTIFICATE"):
            tls.load_cert_chain(certificate, _setting(environ, "CLIENT_KEY") or None)
    except (ValueError, OSError) as err:
        raise Misconfigured(f"OTEL_EXPORTER_OTLP_…: {err}") from err
    return httpx.Client(timeout=timeout_s, verify=tls)


def _setting(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")


def _pairs(text: str) -> dict[str, str]:
    """`name=value,…`, with what is not allowed there written in percent."""
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
