"""Ranks that see different things do the same: rank 0 decides on steps to leave out, the smallest memory on what fits."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.engines.conftest import SPEC
from tests.engines.gangs import Seen, run_gang
from tests.engines.test_step_cache import CACHED

from turnout.engines.base import Parallel

PLENTY = 1 << 40


def test_ranks_that_would_disagree_do_the_same(
    engine: Callable[[str], Any], tiny: Callable[[str], Path], tmp_path: Path, finish: Callable[..., Any]
) -> None:
    import torch

    task = {"weights": str(tiny("t2v")), "parallel": asdict(Parallel(ulysses=2)), "spec": asdict(CACHED)}
    tasks = [
        {**task, "name": "cached", "disagrees": True, "apart": True},
        {**task, "name": "large", "spec": asdict(SPEC), "free_bytes": [PLENTY, 1 << 20]},
        {**task, "name": "next", "spec": asdict(SPEC), "free_bytes": [PLENTY, PLENTY]},
    ]
    run_gang(tmp_path, 2, tasks)
    seen = Seen(tmp_path, 2)
    wanted = finish(engine("t2v").begin(CACHED, None))
    assert all(torch.equal(latents, wanted) for latents in seen.latents("cached"))
    refusals = seen.reports("large")
    assert refusals[0] == refusals[1] and refusals[0]["refused"] == "Unrenderable"
    assert "GiB are free" in refusals[0]["message"], "also where the clip would have fitted"
    after = finish(engine("t2v").begin(SPEC, None))
    assert all(torch.equal(latents, after) for latents in seen.latents("next"))
