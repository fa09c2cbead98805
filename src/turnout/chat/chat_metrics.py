"""Prometheus metrics of chat requests at this gateway. Sum them over all gateways, unlike those of tasks.

They are counted in plain numbers and written out at a scrape. prometheus_client's own counters, with a lock and a
look-up for each label, would cost more than all else that the gateway does for a request.
"""

from collections.abc import Callable, Mapping

from turnout.chat.chat_figures import ModelFigures
from turnout.fleet.route_rules import Demand
from turnout.telemetry import metric_table as table


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
        firsts = [first for one in self._models.values() for first in (one.first, one.first_cold)]
        return sum(sum(one.counts) for one in firsts), sum(one.total for one in firsts)

    def text(self) -> str:
        models, demand = self._models.items(), self._demand().items()
        ended = (((name, outcome), n) for name, one in models for outcome, n in one.ended.items())
        tokens = (
            ((name, kind), count)
            for name, one in models
            for kind, count in (("prompt", one.prompt), ("completion", one.completion))
        )
        firsts = (
            ((name, start), first)
            for name, one in models
            for start, first in (("warm", one.first), ("cold", one.first_cold))
        )
        return "".join(
            (
                table.CHAT_REQUESTS.text(ended),
                table.CHAT_DIRECT.by_label((name, one.direct) for name, one in models),
                table.CHAT_TOKENS.text(tokens),
                table.CHAT_FIRST_BYTE.text(firsts),
                table.CHAT_SECONDS.by_label((name, one.whole) for name, one in models),
                table.CHAT_INTER_TOKEN.by_label((name, one.pace) for name, one in models),
                table.CHAT_REFUSED.by_label(self._refused.items()),
                table.CHAT_WAITING.by_label((name, seen.waiting) for name, seen in demand),
                table.CHAT_RUNNING.by_label((name, seen.running) for name, seen in demand),
            )
        )
