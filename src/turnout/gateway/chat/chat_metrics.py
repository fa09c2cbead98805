"""Prometheus metrics of chat requests at this gateway. Sum them over all gateways, unlike those of tasks.

They are counted in plain numbers and turned into Prometheus's objects at a scrape. Its own counters, with a lock and a
look-up for each label, would cost more than all else that the gateway does for a request.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from turnout.domain.serving import Demand
from turnout.gateway.chat.chat_figures import ModelFigures

_MODEL = ("model",)


class ChatMetrics(Collector):
    """`demand` is read at a scrape."""

    def __init__(self, registry: CollectorRegistry, demand: Callable[[], Mapping[str, Demand]]) -> None:
        self._demand = demand
        self._models: dict[str, ModelFigures] = {}
        self._refused: dict[str, int] = {}
        registry.register(self)

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

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "turnout_chat_requests", "Chat requests that ended.", labels=("model", "outcome")
        )
        tokens = CounterMetricFamily(
            "turnout_chat_tokens",
            "Tokens by the engines' own count, or estimated where they did not come to it.",
            labels=("model", "kind"),
        )
        first = HistogramMetricFamily(
            "turnout_chat_first_byte_seconds",
            "From a request to the first byte of its answer, waking included; with streaming, to the first token.",
            labels=_MODEL,
        )
        whole = HistogramMetricFamily("turnout_chat_seconds", "From a request to its end.", labels=_MODEL)
        pace = HistogramMetricFamily(
            "turnout_chat_inter_token_seconds", "Mean time between two tokens of a stream.", labels=_MODEL
        )
        direct = CounterMetricFamily(
            "turnout_chat_straight",
            "Requests that went to the engine directly, past its worker's proxy.",
            labels=_MODEL,
        )
        for name, figures in self._models.items():
            direct.add_metric((name,), figures.direct)
            for outcome, count in figures.ended.items():
                requests.add_metric((name, outcome), count)
            tokens.add_metric((name, "prompt"), figures.prompt)
            tokens.add_metric((name, "completion"), figures.completion)
            for family, histogram in ((first, figures.first), (whole, figures.whole), (pace, figures.pace)):
                family.add_metric((name,), histogram.buckets(), histogram.total)
        refused = CounterMetricFamily(
            "turnout_chat_refused", "Requests that got no replica.", labels=("code",)
        )
        for code, count in self._refused.items():
            refused.add_metric((code,), count)
        waiting = GaugeMetricFamily(
            "turnout_chat_waiting", "Requests that wait for a replica.", labels=_MODEL
        )
        running = GaugeMetricFamily("turnout_chat_running", "Requests in flight.", labels=_MODEL)
        for name, seen in self._demand().items():
            waiting.add_metric((name,), seen.waiting)
            running.add_metric((name,), seen.running)
        yield from (requests, direct, tokens, first, whole, pace, refused, waiting, running)
