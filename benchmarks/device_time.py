"""How long something takes on a device: by the device's own events where it has any."""

import time
from collections.abc import Callable
from typing import Any


def synchronize(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(run: Callable[[], Any], rounds: int, wall: bool = False) -> float:
    """The median of some rounds, by the device's own events where there are any."""
    import torch

    taken: list[float] = []
    for _ in range(rounds):
        if torch.cuda.is_available() and not wall:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            taken.append(start.elapsed_time(end) / 1e3)
        else:
            began = time.monotonic()
            run()
            taken.append(time.monotonic() - began)
    return sorted(taken)[len(taken) // 2]


def sustained(run: Callable[[], Any], seconds: float = 0.7) -> float:
    run()
    once = seconds_of(run, 1)
    rounds = max(3, min(200, int(seconds / once)))

    def many() -> None:
        for _ in range(rounds):
            run()

    return seconds_of(many, 1) / rounds
