"""The page for owners of a generate.py: its script runs, its engine makes the script's own clip and keeps the contract."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.doc_blocks import ROOT, blocks

PAGES = [ROOT / "docs" / "own-script.md", ROOT / "docs" / "zh" / "own-script.md"]
_SAME = """
import numpy as np, torch
from my_engine import MyEngine
from pathlib import Path
from turnout.engines.base import EngineSetup
from turnout.tasks.video_rules import VideoSpec
spec = VideoSpec("a red ball", "", 64, 64, 9, 8, 4, guidance=(1.0, 1.0), shift=1.0, seed=7)
rendering = MyEngine(EngineSetup(Path("weights"))).begin(spec, None)
while rendering.step < rendering.of:
    rendering.advance()
np.save("engine.npy", rendering.decode())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for block in blocks(PAGES[0]):
        if named := re.match(r"# (\w+\.py)\n", block.text):
            (tmp_path / named[1]).write_text(block.text)
    (tmp_path / "weights").mkdir()
    model = {"words": torch.randn(11, 16), "colours": torch.randn(3, 16)}
    torch.save(model, tmp_path / "weights" / "model.pt")
    return tmp_path


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_engine_makes_the_scripts_own_clip_and_keeps_the_contract(folder: Path) -> None:
    run(folder, "generate.py")
    run(folder, "-c", _SAME)
    clip = torch.load(folder / "clip.pt", weights_only=True).numpy()
    assert clip.shape == (9, 64, 64, 3) and len(np.unique(clip)) > 10
    assert np.array_equal(clip, np.load(folder / "engine.npy"))
    check = next(block.text for block in blocks(PAGES[0]) if "turnout.engines.contract" in block.text)
    said = run(folder, *check.split()[1:])
    assert said.count("ok") == 7 and "FAILED" not in said


def test_both_languages_have_the_same_code() -> None:
    english, chinese = ([block.text for block in blocks(page)] for page in PAGES)
    assert english == chinese
