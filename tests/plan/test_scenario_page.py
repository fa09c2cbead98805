"""The reference page of the scenario format has every key with its default, and examples that are accepted."""

import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from pydantic import TypeAdapter

from turnout.plan import scenario, scenario_file

DOCS = Path(__file__).parents[2] / "docs"
SHAPES: dict[str, Any] = {
    "(file)": scenario_file._Content,  # pyright: ignore[reportPrivateUsage]
    "models.NAME.timing": scenario.Timing,
    "traffic[]": scenario.TrafficPart,
    "traffic[].bursts": scenario.Bursts,
    "machines.NAME": scenario.MachineKind,
    "targets": scenario.Targets,
    "faults": scenario.Faults,
    "faults.kills[]": scenario.Kill,
    "service": scenario.ServiceSettings,
}
WORDS = {"scenario.md": {}, "zh/scenario.md": {"必填": "required", "无": "none"}}
PAGES = pytest.mark.parametrize("page", list(WORDS))


def tables(page: str) -> dict[str, dict[str, list[str]]]:
    """By section, the cells of each key."""
    found: dict[str, dict[str, list[str]]] = {}
    for section in (DOCS / page).read_text().split("\n## ")[1:]:
        heading, _, rest = section.partition("\n")
        [place] = re.findall(r"`([^`]+)`", heading)
        rows = [line.strip("| ").split(" | ") for line in rest.splitlines() if line.startswith("| `")]
        found[place] = {row[0].strip("`"): row[1:] for row in rows}
    return found


def default_of(one: "Field[Any]") -> str:
    if one.default is MISSING:
        return "required" if one.default_factory is MISSING else "none"
    if one.default is None or one.default in ("", ()):
        return "none"
    return f"{one.default:g}" if isinstance(one.default, float) else str(one.default)


@PAGES
def test_the_page_has_every_key_with_its_default(page: str) -> None:
    words = WORDS[page]
    told = {
        place: {key: words.get(cells[1], cells[1]) for key, cells in rows.items()}
        for place, rows in tables(page).items()
    }
    assert told == {
        place: {one.name: default_of(one) for one in fields(shape)} for place, shape in SHAPES.items()
    }


@PAGES
def test_every_row_has_a_unit_an_example_that_is_accepted_and_a_meaning(page: str) -> None:
    for place, rows in tables(page).items():
        hints = get_type_hints(SHAPES[place], include_extras=True)
        for key, (unit, _, example, meaning) in rows.items():
            assert unit and meaning, (place, key)
            TypeAdapter(hints[key]).validate_python(yaml.safe_load(example.strip("`")))


def test_both_languages_show_the_same_examples() -> None:
    english, chinese = (
        {(place, key): cells[2] for place, rows in tables(page).items() for key, cells in rows.items()}
        for page in WORDS
    )
    assert english == chinese
