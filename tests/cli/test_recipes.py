"""The recipes of the docs: each `turnout.yaml` is accepted, fits where it says, and its figures are those of the memory plan and
the scaling model."""

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.doc_blocks import ROOT
from tests.recipes import rows, write_headers

from turnout.cli.doctor.model_checks import check_video_models
from turnout.fleet.machine_rules import Gpu
from turnout.run.config import load
from turnout.worker.gpus import GpuFinding

GIB = 2**30
PAGES = [ROOT / "docs" / "recipes.md", ROOT / "docs" / "zh" / "recipes.md"]
_RECIPE = re.compile(
    r"^## (?P<title>[^\n]+)\n(?:(?!^## ).)*?^<!-- recipe: (?P<gpus>\d+ x \d+) GiB -->\n```yaml\n(?P<text>.*?)```\n(?P<table>.*?)(?=^## |\Z)",
    re.DOTALL | re.MULTILINE,
)


def recipes(page: Path) -> list[re.Match[str]]:
    return list(_RECIPE.finditer(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_the_figures_of_each_recipe_are_those_of_the_plan(page: Path) -> None:
    found = recipes(page)
    assert len(found) == 8
    for recipe in found:
        shown = [
            tuple(cell.strip() for cell in line.strip("|").split("|"))
            for line in recipe["table"].splitlines()
            if re.match(r"\| \d", line)
        ]
        assert shown == rows(recipe["text"], recipe["gpus"]), recipe["title"]


def test_doctor_accepts_each_recipe_on_its_gpus(tmp_path: Path) -> None:
    seen: set[str] = set()
    for place, recipe in enumerate(recipes(PAGES[0])):
        file = tmp_path / f"{place}.yaml"
        text = recipe["text"].replace("/weights/", f"{tmp_path}/")
        file.write_text(f"state_dir: {tmp_path}/state\n{text}")
        config = load({}, {}, file).config
        for model in config.video_models:
            if model.weights not in seen:
                write_headers(Path(model.weights), model.weights)
                seen.add(model.weights)
        count, gib = map(int, recipe["gpus"].split(" x "))
        cards = tuple(Gpu(n, gib * GIB, gib * GIB, "card") for n in range(count))
        findings = list(check_video_models(config, GpuFinding(cards)))
        assert findings and all(finding.ok for finding in findings), (recipe["title"], findings)


@pytest.mark.parametrize(("weights", "memory"), [("Wan2.2-TI2V-5B", "24GiB"), ("Wan2.2-T2V-A14B", "48GiB")])
def test_models_check_accepts_files_like_the_published_ones(
    bare_cli: Cli, tmp_path: Path, weights: str, memory: str
) -> None:
    folder = write_headers(tmp_path / weights, weights)
    said = bare_cli("models", "check", str(folder), "--gpu-memory", memory)
    assert said.code == 0 and "all whole" in said.out and "1 GPU: fp8" in said.out, said.err
