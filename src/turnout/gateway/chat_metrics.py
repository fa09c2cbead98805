"""Prometheus figures of chat requests at this gateway; unlike those of tasks, they are to be added up."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from turnout.domain.serving import Demand

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class ChatMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "turnout_chat_requests", "Chat requests that ended.", ["model", "outcome"], registry=registry
        )
        self._first = Histogram(
            "turnout_chat_first_byte_seconds",
            "From a request to the first byte of its answer, waking included.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._whole = Histogram(
            "turnout_chat_seconds",
            "From a request to its end.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            "turnout_chat_tokens", "Tokens by the engines' own count.", ["model", "kind"], registry=registry
        )
        self._waiting = Gauge(
            "turnout_chat_waiting", "Requests that wait for a replica.", ["model"], registry=registry
        )
        self._running = Gauge("turnout_chat_running", "Requests under way.", ["model"], registry=registry)

    def first_byte(self, model: str, seconds: float) -> None:
        self._first.labels(model).observe(seconds)

    def finished(self, model: str, outcome: str, seconds: float, tokens: tuple[int, int] | None) -> None:
        """`tokens` are those of the prompt and of the answer, where the engine counted them."""
        self._requests.labels(model, outcome).inc()
        self._whole.labels(model).observe(seconds)
        if tokens is not None:
            self._tokens.labels(model, "prompt").inc(tokens[0])
            self._tokens.labels(model, "completion").inc(tokens[1])

    def saw_demand(self, demand: Mapping[str, Demand]) -> None:
        for model, seen in demand.items():
            self._waiting.labels(model).set(seen.waiting)
            self._running.labels(model).set(seen.running)
