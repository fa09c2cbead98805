"""The limit for a gang's start: one process that imports the engine, loads the model and does one step. No service.

It computes on as many threads as one rank would. Run as `python -m benchmarks.direct MODELS_DIR STARTED_AT`;
prints its times as JSON.
"""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

SMALL: dict[str, Any] = {"size": "64x64", "frames": 9, "steps": 4}
_AGAIN = 5


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. `import_s` counts from the start of the process; `warm_s` is begin and first step once more."""

    import_s: float
    load_s: float
    begin_s: float
    warm_s: float


def measure(models: Path, started_at: float) -> Times:
    import torch

    from turnout.engines.base import EngineSetup, Parallel
    from turnout.engines.wan.builtin import find_weights
    from turnout.engines.wan.load import make_engine
    from turnout.run.config import load as load_config
    from turnout.tasks.video_rules import RequestedVideo, settle

    imported = time.time()
    model = load_config({}, {}, Path(os.devnull)).config.video_models[0]
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // model.gang.ranks))
    spec = settle(RequestedVideo("a red ball", **SMALL), model.gang.rules, ulysses=1, seed=7)
    weights = find_weights(model.weights, models)
    found = time.time()
    engine = make_engine(EngineSetup(weights, Parallel(), model.gang.device, model.gang_dtype))
    loaded = time.time()
    engine.begin(spec, None).advance()
    begun = time.time()
    warm: list[float] = []
    for _ in range(_AGAIN):
        began = time.time()
        engine.begin(spec, None).advance()
        warm.append(time.time() - began)
    return Times(imported - started_at, loaded - found, begun - loaded, median(warm))


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Path(sys.argv[1]), float(sys.argv[2])))))
