"""Counts and histograms of chat requests in plain numbers: each request adds to them, a scrape reads them. Pure."""

from turnout.telemetry.histogram import Histogram

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
_BYTES_A_TOKEN = 4  # of English, in most models' vocabularies


class ModelFigures:
    """Of one model; each request adds to them."""

    __slots__ = (
        "completion",
        "counted_bytes",
        "counted_prompt",
        "direct",
        "ended",
        "first",
        "pace",
        "prompt",
        "whole",
    )

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.first = Histogram(_SECONDS)
        self.whole = Histogram(_SECONDS)
        self.pace = Histogram(_TOKEN_SECONDS)
        self.prompt = self.completion = self.direct = 0
        self.counted_bytes = self.counted_prompt = 0

    def guess_prompt(self, size: int) -> int:
        """How many tokens a body of so many bytes is, going by those whose tokens the engine has counted."""
        if not self.counted_bytes:
            return size // _BYTES_A_TOKEN
        return round(size * self.counted_prompt / self.counted_bytes)

    def finished(self, outcome: str, seconds: float, prompt: int, completion: int) -> None:
        self.ended[outcome] = self.ended.get(outcome, 0) + 1
        self.whole.add(seconds)
        self.prompt += prompt
        self.completion += completion
