"""A training step as one CUDA graph: issuing its two thousand kernels one by one takes longer than running them.

Everything runs on one stream of its own from the first step on, as recording wants the gradients' nodes to live on the
stream that is recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

_WARM = 3


@contextlib.contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """A stream that can be recorded, on a GPU; nothing elsewhere."""
    if device.type != "cuda":
        yield
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
        torch.cuda.synchronize()


def recorded(step: Callable[[], None], log: Callable[[str], None]) -> Callable[[], None]:
    """`step` as a graph to replay, or `step` itself where it cannot be recorded. What changes from step to step must
    live in tensors that `step` reads."""
    try:
        for _ in range(_WARM):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            step()
    except RuntimeError as error:
        torch.cuda.synchronize()
        log(f"no CUDA graph: {str(error)[:300]}")
        return step
    log("recorded the step as a CUDA graph")
    return graph.replay
