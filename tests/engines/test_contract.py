"""The public contract: the checks that anyone can run hold for our engines and for the template, and catch bad ones."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.conftest import SPEC
from tests.engines.gangs import once
from tests.ports import free_port

from turnout.engines.base import EngineSetup, Unrenderable, VideoEngine
from turnout.engines.contract import CHECKS, Trial
from turnout.engines.template import TemplateEngine, TemplateRendering
from turnout.engines.video_engines import engine_path, find_engine
from turnout.errors import Misconfigured
from turnout.tasks.video_rules import VideoSpec

SMALL = replace(SPEC, width=64, height=64, frames=9, steps=3)
LTX = replace(SMALL, shift=1.0)
CHECK = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@pytest.fixture(scope="module")
def ltx_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        from tests.engines.tiny_ltx import make_tiny_ltx

        make_tiny_ltx(folder / "weights")

    return once(tmp_path_factory, "ltx", make) / "weights"


@pytest.fixture(scope="module")
def ltx(ltx_weights: Path, single_thread: None) -> VideoEngine:
    return find_engine("ltx")(EngineSetup(ltx_weights))


@CHECK
def test_the_template_keeps_the_contract(check: Callable[..., None]) -> None:
    check(TemplateEngine(EngineSetup(Path())), Trial(SMALL))


@CHECK
def test_wan_keeps_the_contract(check: Callable[..., None], engine: Callable[[str], VideoEngine]) -> None:
    check(engine("t2v"), Trial(SMALL))


@CHECK
def test_ltx_keeps_the_contract(check: Callable[..., None], ltx: VideoEngine) -> None:
    check(ltx, Trial(LTX))


def test_ltx_refuses_fp8_attention_of_a_model_and_of_a_clip(ltx_weights: Path, ltx: VideoEngine) -> None:
    with pytest.raises(ValueError, match="fp8_attention"):
        find_engine("ltx")(EngineSetup(ltx_weights, fp8_attention=True))
    with pytest.raises(Unrenderable, match="no fp8 attention"):
        ltx.begin(replace(LTX, fp8_attention=True), None)


def test_ltx_makes_what_diffusers_pipeline_makes(ltx: Any) -> None:
    import torch

    rendering = ltx.begin(LTX, None)
    assert rendering._latents.is_contiguous(), (
        "as after a resume: a GPU's products round by the order in memory"
    )
    start = rendering._latents.clone()
    while rendering.step < rendering.of:
        rendering.advance()
    wanted = ltx.pipe(
        prompt=LTX.prompt,
        negative_prompt=LTX.negative_prompt,
        width=LTX.width,
        height=LTX.height,
        num_frames=LTX.frames,
        frame_rate=LTX.fps,
        num_inference_steps=LTX.steps,
        guidance_scale=LTX.guidance[1],
        latents=start,
        output_type="latent",
    ).frames
    torch.testing.assert_close(rendering._latents, wanted, rtol=1e-4, atol=1e-4)


class Forgetful(TemplateEngine):
    """Its checkpoints lack what the next step depends on."""

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> TemplateRendering:
        rendering = super().resume(spec, checkpoint)
        rendering._state = np.zeros_like(rendering._state)
        return rendering


class Trusting(TemplateEngine):
    """It takes any checkpoint."""

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> TemplateRendering:
        return self.begin(spec, None)


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        (Forgetful, {"check_resume_gives_same_clip"}),
        (Trusting, {"check_resume_gives_same_clip", "check_bad_checkpoints_are_refused"}),
    ],
)
def test_the_checks_find_what_is_wrong(bad: type[TemplateEngine], names: set[str]) -> None:
    found: set[str] = set()
    for check in CHECKS:
        try:
            check(bad(EngineSetup(Path())), Trial(SMALL))
        except AssertionError:
            found.add(check.__name__)
    assert found == names


def test_the_checks_run_as_a_command_on_two_ranks(ltx_weights: Path) -> None:
    command = [sys.executable, "-m", "turnout.engines.contract", "ltx", str(ltx_weights), "--cfg", "2"]
    meeting = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    meeting["MASTER_PORT"] = str(free_port())
    ranks = [
        subprocess.Popen(
            [*command, "--shift", "1"],
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=200)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
    assert said[0].count("ok ") == len(CHECKS) and said[1].count("ok ") == 0


def test_engines_are_found_by_name_by_entry_point_and_by_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[turnout.engines]\nmine = turnout.engines.template:TemplateEngine\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_engine("mine") is TemplateEngine
    assert find_engine("turnout.engines.template:TemplateEngine") is TemplateEngine
    assert engine_path("wan").startswith("turnout.engines.wan")
    for wrong in ("nobody", "no.such.module:Engine", "turnout.engines.template:Nothing"):
        with pytest.raises(Misconfigured):
            find_engine(wrong)
