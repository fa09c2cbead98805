"""Spans as OTLP's messages (`opentelemetry/proto/trace/v1`, stable since 1.0), in protobuf's wire format. Pure.

Written out here, because OpenTelemetry's SDK takes four times as long, and for as long no request is served: tests read
what is written with OpenTelemetry's own classes.
"""

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache

from turnout.telemetry.trace_rules import AttributeValue, SpanKind, TraceContext, TraceSpan

_KINDS = {SpanKind.INTERNAL: b"\x30\x01", SpanKind.SERVER: b"\x30\x02", SpanKind.CLIENT: b"\x30\x03"}
_FAILED = b"\x18\x02"
_SAMPLED = struct.pack("<I", 0x101)  # and it is known where the parent is: in the same process, or told
_INT64 = (1 << 64) - 1
_TIMES = struct.Struct("<BQBQ")  # two fields of 64 bits with their tags
_DOUBLE = struct.Struct("<d")

# Tags: the field's number and what follows, as the message definitions have them.
_RESOURCE_SPANS, _RESOURCE, _SCOPE_SPANS, _SCOPE, _SPAN = b"\x0a", b"\x0a", b"\x12", b"\x0a", b"\x12"
_ATTRIBUTE, _LINK, _STATUS, _FLAGS = b"\x4a", b"\x6a", b"\x7a", b"\x85\x01"
_FIRST, _SECOND, _NAME = b"\x0a", b"\x12", b"\x2a"
_STARTED, _ENDED = 0x39, 0x41


def span_message(span: TraceSpan) -> bytes:
    """One span, to be put into a request."""
    parts = [
        _identity(span.context),
        b"\x22\x08" + bytes.fromhex(span.parent) if span.parent else b"",
        _text(_NAME, span.name),
        _KINDS[span.kind],
        _TIMES.pack(_STARTED, int(span.began * 1e9), _ENDED, int(max(span.began, span.ended) * 1e9)),
    ]
    for name, value in span.attributes.items():
        parts.append(_field(_ATTRIBUTE, _pair(name, value)))
    for link in span.links:
        parts.append(_field(_LINK, _identity(link) + b"\x35" + _SAMPLED))
    if span.error:
        parts.append(_field(_STATUS, _text(_SECOND, span.error) + _FAILED))
    parts.append(_FLAGS + _SAMPLED)
    return _field(_SPAN, b"".join(parts))


def resource_message(
    resource: Mapping[str, AttributeValue], scope: str, version: str, spans: Iterable[bytes]
) -> bytes:
    """Spans of one resource. Requests are such messages, one after the other."""
    attributes = b"".join([_field(_FIRST, _pair(name, value)) for name, value in resource.items()])
    by = _field(_SCOPE, _text(_FIRST, scope) + _text(_SECOND, version))
    return _field(_RESOURCE_SPANS, _field(_RESOURCE, attributes) + _field(_SCOPE_SPANS, by + b"".join(spans)))


def _identity(context: TraceContext) -> bytes:
    return b"\x0a\x10%b\x12\x08%b" % (bytes.fromhex(context.trace), bytes.fromhex(context.span))


def _pair(name: str, value: AttributeValue) -> bytes:
    if isinstance(value, bool):
        told = b"\x10\x01" if value else b"\x10\x00"
    elif isinstance(value, int):
        told = b"\x18" + _varint(value & _INT64)
    elif isinstance(value, float):
        told = b"\x21" + _DOUBLE.pack(value)
    else:
        told = _text(_FIRST, value)
    return _key(name) + _field(_SECOND, told)


@lru_cache(maxsize=256)  # all that are in the code, and some of the operator's
def _key(name: str) -> bytes:
    return _text(_FIRST, name)


def _text(tag: bytes, text: str) -> bytes:
    return _field(tag, text.encode(errors="replace"))


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    if number < 0x80:
        return number.to_bytes(1)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
