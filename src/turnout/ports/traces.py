"""Where spans go."""

from typing import Protocol

from turnout.domain.trace_context import TraceSpan


class SpanSink(Protocol):
    """To record never raises and never waits."""

    @property
    def dropped(self) -> int:
        """Spans that nobody will see: too many waited, or the receiver did not take them."""
        ...

    def record(self, span: TraceSpan) -> None: ...
