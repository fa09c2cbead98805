"""What every video engine must do, as checks that anyone can run against a class of their own.

    python -m turnout.engines.contract my_package.engine:MyEngine WEIGHTS --size 256x256 --frames 17 --steps 4
    torchrun --nproc-per-node 2 -m turnout.engines.contract my_package.engine:MyEngine WEIGHTS --cfg 2 …

or in pytest: `@pytest.mark.parametrize("check", CHECKS)`, and call `check(engine, trial)`. All ranks run the same checks in the
same order, as a gang does. A check raises AssertionError with what is wrong.
"""

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from turnout.engines.base import (
    CheckpointRefused,
    EngineError,
    EngineSetup,
    Frame,
    Frames,
    Parallel,
    Rendering,
    VideoEngine,
)
from turnout.tasks.video_rules import VideoSpec


@dataclass(frozen=True, slots=True)
class Trial:
    """A clip to render in every check, and which rank this is. `image` is a first frame for engines that need one."""

    spec: VideoSpec
    rank: int = 0
    image: bytes | None = None

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def begin(self, engine: VideoEngine) -> Rendering:
        return engine.begin(self.spec, self.image if self.leads else None)


def check_steps_and_frames(engine: VideoEngine, trial: Trial) -> None:
    """A clip has as many steps as were asked for, and ends as RGB frames on rank 0 alone."""
    rendering = trial.begin(engine)
    assert rendering.step == 0, f"a clip begins at step 0, not {rendering.step}"
    assert rendering.of == trial.spec.steps, f"{trial.spec.steps} steps were asked for, not {rendering.of}"
    for done in range(trial.spec.steps):
        rendering.advance()
        assert rendering.step == done + 1, f"after advance number {done + 1} the step is {rendering.step}"
    frames = whole_clip(rendering.decode())
    if not trial.leads:
        assert frames is None, "only rank 0 has the frames"
        return
    assert frames is not None, "rank 0 decoded nothing"
    wanted = (trial.spec.frames, trial.spec.height, trial.spec.width, 3)
    assert frames.shape == wanted, f"the clip is {frames.shape}, not {wanted}"
    assert frames.dtype == np.uint8, f"frames are uint8, not {frames.dtype}"


def check_same_spec_gives_same_clip(engine: VideoEngine, trial: Trial) -> None:
    """The seed decides: a second render, and one after another seed, give the same bytes."""
    first = _finished(trial.begin(engine))
    other = _finished(replace(trial, spec=replace(trial.spec, seed=trial.spec.seed + 1)).begin(engine))
    again = _finished(trial.begin(engine))
    assert _same(first, again), "the same spec gave another clip the second time"
    assert not trial.leads or not _same(first, other), "another seed gave the same clip"


def check_resume_gives_same_clip(engine: VideoEngine, trial: Trial) -> None:
    """A render that goes on from a checkpoint gives the bytes of one that was not disturbed."""
    rendering = trial.begin(engine)
    rendering.advance()
    kept = rendering.snapshot() if trial.leads else b""
    whole = _finished(rendering)
    _finished(trial.begin(engine))  # what another task leaves behind must not matter
    resumed = engine.resume(trial.spec, kept)
    assert resumed.step == 1, f"it stands at step {resumed.step}, and the checkpoint was taken at step 1"
    assert _same(whole, _finished(resumed)), "the resumed render gave another clip"


def check_snapshot_is_harmless(engine: VideoEngine, trial: Trial) -> None:
    """A checkpoint and a preview change nothing; the preview is an animated WebP."""
    plain = _finished(trial.begin(engine))
    rendering = trial.begin(engine)
    rendering.advance()
    if trial.leads:
        assert rendering.snapshot() == rendering.snapshot(), "two checkpoints of the same step differ"
        shown = Image.open(io.BytesIO(rendering.preview()))
        assert shown.format == "WEBP", f"a preview is a WebP, not {shown.format}"
        rendering.preview()
    assert _same(plain, _finished(rendering)), "taking a checkpoint or a preview changed the clip"


def check_bad_checkpoints_are_refused(engine: VideoEngine, trial: Trial) -> None:
    """A checkpoint of another spec, one that is cut short and one of noise raise CheckpointRefused on every rank."""
    rendering = trial.begin(engine)
    rendering.advance()
    kept = rendering.snapshot() if trial.leads else b""
    other = replace(trial.spec, prompt=f"{trial.spec.prompt}, at night")
    for spec, data in (
        (other, kept),
        (trial.spec, kept[: len(kept) // 2]),
        (trial.spec, b"noise"),
        (trial.spec, b""),
    ):
        try:
            engine.resume(spec, data if trial.leads else b"")
        except CheckpointRefused:
            continue
        raise AssertionError(f"a checkpoint of {len(data)} bytes that does not fit was taken")
    _finished(trial.begin(engine))


def check_refused_task_leaves_a_working_engine(engine: VideoEngine, trial: Trial) -> None:
    """A first frame that is none, or is not wanted, raises an EngineError on every rank, and the next task renders."""
    try:
        engine.begin(replace(trial.spec, image="first-frame"), b"no picture" if trial.leads else None)
    except EngineError:
        pass
    else:
        raise AssertionError("a first frame that is no picture was taken")
    _finished(trial.begin(engine))


def check_dropped_task_leaves_a_working_engine(engine: VideoEngine, trial: Trial) -> None:
    """A cancelled task is left where it stands: no method tells the engine. The next one gives its own clip."""
    plain = _finished(trial.begin(engine))
    trial.begin(engine).advance()
    assert _same(plain, _finished(trial.begin(engine))), "a task that was left behind changed the next one"


CHECKS: tuple[Callable[[VideoEngine, Trial], None], ...] = (
    check_steps_and_frames,
    check_same_spec_gives_same_clip,
    check_resume_gives_same_clip,
    check_snapshot_is_harmless,
    check_bad_checkpoints_are_refused,
    check_refused_task_leaves_a_working_engine,
    check_dropped_task_leaves_a_working_engine,
)


def _finished(rendering: Rendering) -> "Frames | None":
    while rendering.step < rendering.of:
        rendering.advance()
    return whole_clip(rendering.decode())


def whole_clip(frames: "Iterable[Frame] | None") -> "Frames | None":
    """All frames as one array."""
    return None if frames is None else np.stack(list(frames))


def _same(one: "Frames | None", other: "Frames | None") -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def main() -> int:
    from turnout.engines.video_engines import find_engine

    said = _arguments()
    width, _, height = said.size.partition("x")
    guidance = (said.guidance, said.guidance)
    image = said.image.read_bytes() if said.image else None
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    spec = VideoSpec(
        *(
            "a red ball rolls",
            "blurry",
            int(width),
            int(height),
            said.frames,
            8,
            said.steps,
            guidance,
            said.shift,
            7,
        ),
        image="first-frame" if image else None,
    )
    if ranks > 1:
        import torch.distributed as dist

        dist.init_process_group("cpu:gloo,cuda:nccl" if said.device == "cuda" else "gloo")
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if said.device == "cuda" else said.device
    parallel = Parallel(said.ulysses, said.cfg)
    engine = find_engine(said.engine)(EngineSetup(said.weights, parallel, device, said.dtype))
    failed = 0
    for check in CHECKS:
        try:
            check(engine, Trial(spec, rank, image))
        except Exception:  # noqa: BLE001 - whatever an engine raises is what was looked for
            traceback.print_exc()
            failed += 1
            if ranks > 1:
                break  # the other ranks may wait in a collective
        if rank == 0:
            print(f"{'FAILED' if failed else 'ok':6} {(check.__doc__ or '').splitlines()[0]}", flush=True)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m turnout.engines.contract", description=__doc__)
    parser.add_argument("engine", help="module:attribute, or a name of the entry point group turnout.engines")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--size", default="64x64")
    parser.add_argument("--frames", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--shift", type=float, default=5.0)
    parser.add_argument("--image", type=Path, help="a first frame, for engines that need one")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--ulysses", type=int, default=1)
    parser.add_argument("--cfg", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
