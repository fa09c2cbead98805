"""Each mistake of a scenario is one line that says where it is."""

from pathlib import Path

import pytest

from turnout.errors import Misconfigured
from turnout.plan.scenario_file import ScenarioMistakes, parse_scenario, read_scenario

GOOD = """\
days: 1
models:
  wan:
    family: wan2.2-ti2v-5b
    device: cuda
    timing: {load_s: 60, sizes: {small: 20, large: 90}}
  chat:
    engine: vllm
    copies: 3
    timing: {load_s: 40, tokens_per_s: 50}
traffic:
  - {model: wan, a_day: 10, sizes: {small: 1, large: 2}}
  - {model: chat, an_hour: 5, tokens: 100}
machines:
  h100: {gpus: 8, price_an_hour: 20}
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(ScenarioMistakes) as found:
        parse_scenario(text, "s.yaml")
    return list(found.value.lines)


def test_copies_are_models_of_their_own() -> None:
    scenario = parse_scenario(GOOD, "s.yaml")
    assert scenario.copies["chat"] == ("chat-1", "chat-2", "chat-3")
    assert list(scenario.models) == ["wan", "chat-1", "chat-2", "chat-3"]
    assert scenario.models["wan"].spec.needs.gpus == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("days: 1", "dayz: 1", ["s.yaml:1: dayz is not known."]),
        ("days: 1", "days: soon", ["s.yaml:1: days must be a number."]),
        ("load_s: 60", "load_s: -1", ["s.yaml:6: models.wan.timing.load_s must be at least 0.0."]),
        ("device: cuda", "device: tpu", ["s.yaml:5: models.wan: device is one of cpu, cuda; not 'tpu'"]),
        ("model: wan", "model: won", ["s.yaml:12: traffic.0.model: there is no model 'won'."]),
        ("small: 1", "tiny: 1", ["s.yaml:12: traffic.0.sizes: wan has no size 'tiny'."]),
        (", tokens: 100", "", ["s.yaml:13: traffic.1 needs tokens: chat says no other time of a request."]),
        ("tokens_per_s: 50", "wake_s: 5", [
            "s.yaml:10: models.chat.timing needs seconds, sizes or tokens_per_s: how long a request takes.",
            "s.yaml:13: traffic.1.tokens: chat has no tokens_per_s.",
        ]),
        ("gpus: 8", "gpus: 0", [
            "s.yaml:3: models.wan fits on no machine: it needs 1 GPUs with 0 GB each, and 1.07374 GB of memory.",
            "s.yaml:7: models.chat fits on no machine: it needs 1 GPUs with 0 GB each, and 0 GB of memory.",
        ]),
        ("copies: 3", "copies: 0", ["s.yaml:9: models.chat.copies must be from 1 to 2000."]),
        ("copies: 3", "engine: vllm", ["s.yaml:9: engine is given twice."]),
        ("  - {model: wan", "  - {modl: wan", ["s.yaml:12: traffic.0.modl is not known."]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(old: str, new: str, said: list[str]) -> None:
    assert mistakes(GOOD.replace(old, new, 1))[: len(said)] == said


def test_all_mistakes_are_said_at_once() -> None:
    wrong = (
        GOOD.replace("load_s: 60", "load_s: x").replace("gpus: 8", "gpus: y").replace("days: 1", "seed: z")
    )
    assert [line.split(":")[1] for line in mistakes(wrong)] == ["1", "6", "15"]


@pytest.mark.parametrize("text", ["", "[]", "3", "models: [", "models:\n\t- a", "a: &a [*a]"])
def test_what_is_no_scenario_is_refused_in_lines(text: str) -> None:
    assert all(line.startswith("s.yaml:") for line in mistakes(text))


def test_a_file_that_is_too_large_or_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        read_scenario(tmp_path / "absent.yaml")
    large = tmp_path / "large.yaml"
    large.write_text("#" * (4 * 2**20 + 1))
    with pytest.raises(Misconfigured, match="over"):
        read_scenario(large)
