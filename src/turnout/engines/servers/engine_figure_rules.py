"""What an engine server tells of itself, read from the text of its `/metrics`. Pure.

The text is a stranger's: only the names below are looked for, and a value that cannot be is left out.
"""

import math
import re
from collections.abc import Sequence

from turnout.fleet.replica_rules import EngineFigures

# The newer name first: vLLM tells a renamed figure under both names for a while.
_KV_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio")
_PREFIX = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
_PREFIX_HITS = (
    "vllm:prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits_total",
    "llamacpp:prompt_tokens_cached_total",
)
_COMPUTED = ("llamacpp:prompt_tokens_total",)  # those that it did not find; older ones tell only this
_RUNNING = ("vllm:num_requests_running", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "llamacpp:requests_deferred")

_NAMES = "|".join((*_KV_CACHE, *_PREFIX, *_PREFIX_HITS, *_COMPUTED, *_RUNNING, *_WAITING))
_LINE = re.compile(rf"^({_NAMES})(?:\{{.*\}})?[ \t]+([0-9.eE+-]{{1,40}})(?=\s|$)", re.MULTILINE)
_MAX = 2.0**53  # a float counts no further


def read_engine_figures(text: str) -> EngineFigures | None:
    """None if it tells none of them."""
    told: dict[str, list[float]] = {}
    for name, written in _LINE.findall(text):
        value = _number(written)
        if value is not None:
            told.setdefault(name, []).append(value)
    # vLLM has a line for each of its engine cores. The fullest cache is the one that makes requests wait.
    fullest = max(_first(told, _KV_CACHE), default=None)
    looked_up, hits, computed = (_sum(_first(told, names)) for names in (_PREFIX, _PREFIX_HITS, _COMPUTED))
    if looked_up is None and hits is not None and computed is not None:
        looked_up = hits + computed
    figures = EngineFigures(
        fullest if fullest is not None and fullest <= 1 else None,
        looked_up,
        hits,
        _sum(_first(told, _RUNNING)),
        _sum(_first(told, _WAITING)),
    )
    return None if figures == EngineFigures() else figures


def _number(written: str) -> float | None:
    try:
        value = float(written)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= _MAX else None


def _first(told: dict[str, list[float]], names: Sequence[str]) -> list[float]:
    return next((told[name] for name in names if name in told), list[float]())


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None
