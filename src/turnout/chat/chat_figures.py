"""Counts and histograms of chat requests in plain numbers: each request adds to them, a scrape reads them. Pure."""

from turnout.telemetry.metric_table import CHAT_FIRST_BYTE, CHAT_INTER_TOKEN, CHAT_SECONDS

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
        "first_cold",
        "pace",
        "prompt",
        "whole",
    )

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.first = CHAT_FIRST_BYTE.new()
        self.first_cold = CHAT_FIRST_BYTE.new()
        self.whole = CHAT_SECONDS.new()
        self.pace = CHAT_INTER_TOKEN.new()
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
