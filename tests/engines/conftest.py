"""Tiny models, engines and a first frame."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers  # noqa: F401 - whole, before an engine takes little of it: its pipelines are compared with
import numpy as np
import pytest
from PIL import Image

from turnout.engines.base import EngineSetup, Frames, Parallel, Rendering
from turnout.tasks.video_rules import VideoSpec

SPEC = VideoSpec(
    prompt="a red &amp; white fox  runs",
    negative_prompt="blurry",
    width=96,
    height=64,
    frames=9,
    fps=16,
    steps=6,
    guidance=(3.0, 4.0),
    shift=5.0,
    seed=7,
)


@pytest.fixture(scope="session")
def single_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, single_thread: None) -> Callable[[str], Path]:
    """The tiny model of a kind, made once a session."""
    from turnout.engines.wan.tiny import make_tiny

    root = tmp_path_factory.mktemp("tiny")

    def get(kind: Any) -> Path:
        path = root / kind
        return path if path.exists() else make_tiny(kind, path)

    return get


@pytest.fixture(scope="session")
def engine(tiny: Callable[[str], Path]) -> Callable[[str], Any]:
    """The tiny model of a kind on one rank, loaded once a session: an engine keeps nothing between renders."""
    from turnout.engines.wan.load import make_engine

    loaded: dict[str, Any] = {}

    def get(kind: str) -> Any:
        if kind not in loaded:
            loaded[kind] = make_engine(EngineSetup(tiny(kind), Parallel()))
        return loaded[kind]

    return get


@pytest.fixture
def spec() -> VideoSpec:
    return SPEC


@pytest.fixture(scope="session")
def first_frame() -> bytes:
    """A PNG of the spec's own size, so that nothing has to be scaled."""
    pixels = np.random.default_rng(0).integers(0, 256, (SPEC.height, SPEC.width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="session")
def moving_frames() -> Frames:
    """A clip of a bright square on a blue field, moving to the right."""
    frames = np.zeros((17, 64, 96, 3), dtype=np.uint8)
    frames[..., 2] = 160
    for place, frame in enumerate(frames):
        frame[16:48, 4 * place : 4 * place + 24] = (240, 200, 40)
    return frames


@pytest.fixture
def finish() -> Callable[[Rendering], Any]:
    """Runs a rendering to its end and returns its latents."""

    def run(rendering: Any) -> Any:
        while rendering.step < rendering.of:
            rendering.advance()
        return rendering.latents

    return run
