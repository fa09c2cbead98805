"""What all targets share: time, seeds, ways to damage bytes and JSON, and what must hold afterwards.

`FUZZ_S` is the time of each target. Each case has a seed of its own, which is printed when it fails:
`FUZZ_SEED=… FUZZ_S=1` runs that case first.
"""

import logging
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil

MAX_GROWTH_BYTES = 300 * 2**20
_WORDS = (
    "", "x", "\0", "é" * 50, "[" * 2000, "1e999", "-1", "NaN", "9" * 30, "../../etc", "data:image/png;base64,",
    "\U0001f600", "null", "true", "a" * 5000, "video_1", "w-1", "%00", "<svg/>",
)  # fmt: skip
_NUMBERS = (0, -1, 1, 2**31, 2**63, 2**70, 10**30, 10**400, 0.5, -0.0, 1e308)


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        said = self.format(record)
        if "AsyncClient.aclose()" not in said:  # a client of an earlier test, whose loop is gone
            self.heard.append(said)


def cases() -> Iterator[random.Random]:
    """A source of chance for each case, until this target's time is over."""
    ends_at = time.monotonic() + float(os.environ.get("FUZZ_S", "1"))
    seed = int(os.environ.get("FUZZ_SEED", time.time_ns() % 10**12))
    count = 0
    while time.monotonic() < ends_at or count == 0:
        try:
            yield random.Random(seed)
        except BaseException:
            print(f"failed with FUZZ_SEED={seed}")
            raise
        seed += 1
        count += 1
    print(f"{count} cases, the last with FUZZ_SEED={seed - 1}")


@contextmanager
def watched() -> Iterator[None]:
    """No error in the logs of asyncio and uvicorn, and no memory that stays."""
    complaints = _Complaints()
    loggers = [logging.getLogger(name) for name in ("asyncio", "uvicorn.error")]
    for logger in loggers:
        logger.addHandler(complaints)
    before = psutil.Process().memory_info().rss
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(complaints)
    assert complaints.heard == [], complaints.heard[0][-1500:]
    assert psutil.Process().memory_info().rss - before < MAX_GROWTH_BYTES


def check_answer(answer: httpx.Response, asked: object) -> None:
    """Not an error that nobody foresaw; and any error has the documented shape."""
    assert answer.status_code < 500 or answer.status_code == 503, (asked, answer.text)
    own_shape = asked == ("GET", "/ready")  # says of each part what is wrong
    if answer.status_code >= 400 and answer.request.method != "HEAD" and not own_shape:
        problem = answer.json().get("error", {}) if answer.content else {}
        assert set(problem) == {"message", "type", "param", "code"}, (asked, answer.text)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The same with a few bytes changed, cut, doubled or put in."""
    out = bytearray(data)
    for _ in range(chance.randint(0, 6)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(5):
            case 0 if at < len(out):
                out[at] = chance.randrange(256)
            case 1:
                del out[at : at + chance.randint(1, 20)]
            case 2:
                out[at:at] = out[at : at + chance.randint(1, 60)]
            case 3:
                out[at:at] = chance.choice((b"\r\n", b"\0", b"\xff", b" ", b":", b"0", b"\r\n\r\n", b"\t"))
            case _:
                out[at:at] = chance.randbytes(chance.randint(1, 10))
    return bytes(out)


def any_json(chance: random.Random, depth: int = 3) -> Any:
    match chance.randrange(7 if depth else 4):
        case 0:
            return chance.choice(_WORDS)
        case 1:
            return chance.choice(_NUMBERS)
        case 2:
            return chance.choice((True, False, None))
        case 3:
            return chance.randint(-10, 200)
        case 4:
            return [any_json(chance, depth - 1) for _ in range(chance.randint(0, 4))]
        case _:
            return {chance.choice(_WORDS): any_json(chance, depth - 1) for _ in range(chance.randint(0, 4))}


def altered(value: Any, chance: random.Random) -> Any:
    """A JSON value with something in it replaced, left out or added."""
    if not isinstance(value, dict | list) or chance.random() < 0.15:
        return any_json(chance) if chance.random() < 0.5 else value
    if isinstance(value, list):
        return [altered(one, chance) for one in value]
    out = {name: altered(one, chance) for name, one in value.items() if chance.random() > 0.05}
    if chance.random() < 0.1:
        out[chance.choice(_WORDS)] = any_json(chance)
    return out
