"""A trace needs only `at`; what it says wrongly is refused with its line, and so are numbers that are none."""

import codecs
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.plan.test_scenario_file import GOOD, mistakes

from turnout.errors import Misconfigured
from turnout.plan.scenario import Scenario, TrafficPart
from turnout.plan.scenario_file import parse_scenario
from turnout.plan.traffic import PlannedRequest, requests

DECLARED = parse_scenario(GOOD, "s.yaml")


def traced(folder: Path, content: str | bytes, made: Scenario = DECLARED) -> list[PlannedRequest]:
    file = folder / "trace.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(
        requests(replace(made, traffic=(TrafficPart(trace=str(file)),), untraced=made.traffic), folder)
    )


def test_a_trace_with_times_alone_is_drawn_as_the_scenario_s_traffic(tmp_path: Path) -> None:
    found = traced(tmp_path, "at\n" + "\n".join(str(n) for n in range(2_000)))
    of = Counter(request.model.partition("-")[0] for request in found)
    assert len(found) == 2_000 and 0.03 < of["wan"] / 2_000 < 0.12, "10 of 130 a day"
    assert {r.seconds for r in found if r.model == "wan"} == {20.0, 90.0}
    assert all(r.tokens > 0 for r in found if r.model != "wan")
    assert [r.number for r in found] == sorted({r.number for r in found})


def test_what_excel_writes_is_read(tmp_path: Path) -> None:
    text = "at,model,size\r\n2026-11-01T10:00:00,wan,small\r\n2026-11-01T10:01:00,wan,large\r\n"
    found = traced(tmp_path, codecs.BOM_UTF8 + text.encode())
    assert [(r.at, r.seconds) for r in found] == [(0.0, 20.0), (60.0, 90.0)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("nan,wan,,,small", "at must be a time from 0 on, not 'nan'"),
        ("inf,wan,,,small", "at must be a time from 0 on, not 'inf'"),
        ("-1,wan,,,small", "at must be a time from 0 on, not '-1'"),
        ("noon,wan,,,small", "at must be seconds or a date and time, not 'noon'"),
        ("1,wan,nan,,", "seconds must be a number from 0 to 1e+06, not 'nan'"),
        ("1,wan,-3,,", "seconds must be a number from 0 to 1e+06, not '-3'"),
        ("1,wan,inf,,", "seconds must be a number from 0 to 1e+06, not 'inf'"),
        ("1,chat,,-5,", "tokens must be a number from 0 to 1e+07, not '-5'"),
        ("1,chat,,many,", "tokens must be a number from 0 to 1e+07, not 'many'"),
        ("1,wan,,,huge", "wan has no size 'huge'"),
        ("1,won,,,", "there is no model 'won'"),
    ],
)
def test_a_row_that_says_nonsense_is_refused_with_its_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(Misconfigured) as found:
        traced(tmp_path, f"at,model,seconds,tokens,size\n0,wan,5,,\n{row}\n")
    assert str(found.value) == f"{tmp_path / 'trace.csv'}:3: {said}"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("days: 1", "days: .nan", "s.yaml:1: days must be a finite number."),
        ("days: 1", "days: .inf", "s.yaml:1: days must be a finite number."),
        ("load_s: 60", "load_s: .nan", "s.yaml:6: models.wan.timing.load_s must be a finite number."),
        ("small: 20", "small: .inf", "s.yaml:6: models.wan.timing.sizes.small must be a finite number."),
        ("a_day: 10", "a_day: .nan", "s.yaml:12: traffic.0.a_day must be a finite number."),
        ("small: 1", "small: -1", "s.yaml:12: traffic.0.sizes.small must be at least 0.0."),
        ("price_an_hour: 20", "price_an_hour: .inf", "s.yaml:15: machines.h100.price_an_hour must be a finite number."),
        ("device: cuda", "idle_s: .nan", "s.yaml:5: models.wan: idle_s must be at most 10000000.0."),
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_refused_with_their_line(old: str, new: str, line: str) -> None:
    assert mistakes(GOOD.replace(old, new, 1))[0] == line


def test_an_alias_bomb_is_refused() -> None:
    names = [chr(ord("a") + n) for n in range(20)]
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in itertools.pairwise(names)
    ]
    [said] = mistakes("\n".join(lines))
    assert said.endswith("it has more than 200000 values, aliases counted as what they stand for")
