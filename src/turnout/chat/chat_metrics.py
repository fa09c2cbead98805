"""Prometheus metrics of chat requests at this gateway. Sum them over all gateways, unlike those of tasks.

They are counted in plain numbers and written out at a scrape. prometheus_client's own counters, with a lock and a
look-up for each label, would cost more than all else that the gateway does for a request.
"""

from collections.abc import Callable, Mapping

from turnout.chat.chat_figures import ModelFigures
from turnout.fleet.route_rules import Demand
from turnout.telemetry.exposition import counter, gauge, histogram

_MODEL = ("model",)


class ChatMetrics:
    """`demand` is read at a scrape."""

    def __init__(self, demand: Callable[[], Mapping[str, Demand]]) -> None:
        self._demand = demand
        self._models: dict[str, ModelFigures] = {}
        self._refused: dict[str, int] = {}

    def of(self, model: str) -> ModelFigures:
        """`model` must be one that exists: every name becomes a label."""
        figures = self._models.get(model)
        if figures is None:
            figures = self._models[model] = ModelFigures()
        return figures

    def refused(self, code: str | None) -> None:
        """A request that got no replica."""
        name = code or "error"
        self._refused[name] = self._refused.get(name, 0) + 1

    def first_totals(self) -> tuple[int, float]:
        """How many answers have begun ever, and how long their callers waited together."""
        firsts = [figures.first for figures in self._models.values()]
        return sum(sum(one.counts) for one in firsts), sum(one.total for one in firsts)

    def text(self) -> str:
        ended = (
            ((name, outcome), count)
            for name, figures in self._models.items()
            for outcome, count in figures.ended.items()
        )
        tokens = (
            ((name, kind), count)
            for name, figures in self._models.items()
            for kind, count in (("prompt", figures.prompt), ("completion", figures.completion))
        )
        models, demand = self._models.items(), self._demand().items()
        return "".join(
            (
                counter(
                    "turnout_chat_requests_total", "Chat requests that ended.", ("model", "outcome"), ended
                ),
                counter(
                    "turnout_chat_direct_requests_total",
                    "Requests that went to the engine directly, past its worker's proxy.",
                    _MODEL,
                    (((name,), figures.direct) for name, figures in models),
                ),
                counter(
                    "turnout_chat_tokens_total",
                    "Tokens by the engines' own count, or estimated where they did not come to it.",
                    ("model", "kind"),
                    tokens,
                ),
                histogram(
                    "turnout_chat_first_byte_seconds",
                    "From a request to the first byte of its answer, waking included; with streaming, to the first token.",
                    _MODEL,
                    (((name,), figures.first) for name, figures in models),
                ),
                histogram(
                    "turnout_chat_seconds",
                    "From a request to its end.",
                    _MODEL,
                    (((name,), figures.whole) for name, figures in models),
                ),
                histogram(
                    "turnout_chat_inter_token_seconds",
                    "Mean time between two tokens of a stream.",
                    _MODEL,
                    (((name,), figures.pace) for name, figures in models),
                ),
                counter(
                    "turnout_chat_refused_total",
                    "Requests that got no replica.",
                    ("code",),
                    (((code,), count) for code, count in self._refused.items()),
                ),
                gauge(
                    "turnout_chat_waiting",
                    "Requests that wait for a replica.",
                    _MODEL,
                    (((name,), seen.waiting) for name, seen in demand),
                ),
                gauge(
                    "turnout_chat_running",
                    "Requests in flight.",
                    _MODEL,
                    (((name,), seen.running) for name, seen in demand),
                ),
            )
        )
