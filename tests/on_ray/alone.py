"""Renders a task in one process without any service: `python -m tests.on_ray.alone SPEC.json OUT.mp4 MODELS`."""

import json
import sys
from pathlib import Path

from turnout.tasks.video_rules import VideoSpec


def main() -> None:
    from turnout.engines import mp4
    from turnout.engines.base import EngineSetup, Parallel
    from turnout.engines.wan.builtin import find_weights
    from turnout.engines.wan.load import make_engine

    spec = VideoSpec(**json.loads(Path(sys.argv[1]).read_text()))
    engine = make_engine(
        EngineSetup(
            find_weights("builtin:wan-tiny-t2v", Path(sys.argv[3])), Parallel(1, 1, False), "cpu", "float32"
        )
    )
    rendering = engine.begin(spec, None)
    while rendering.step < rendering.of:
        rendering.advance()
    frames = rendering.decode()
    assert frames is not None
    Path(sys.argv[2]).write_bytes(mp4.encode(frames, spec.fps))


if __name__ == "__main__":
    main()
