"""What is read from the text of an engine's `/metrics`. `told_metrics` has what a real
llama.cpp answered; the lines of vLLM are written after its names."""

import math
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.engines.servers.engine_figure_rules import read_engine_figures
from turnout.fleet.replica_rules import EngineFigures

TOLD = Path(__file__).with_name("told_metrics")
NAMES = (
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_requests_running",
    "llamacpp:prompt_tokens_cached_total",
    "llamacpp:requests_deferred",
)
VALUES = ("0.5", "3", "1e3", "NaN", "-1", "+Inf", "1e999", "--", "1_0", "9" * 60, "")


def test_llamacpp_tells_its_queue_and_what_it_found_of_prompts() -> None:
    figures = read_engine_figures((TOLD / "llamacpp.txt").read_text())
    assert figures == EngineFigures(None, 33, 0, 0, 0)


def test_an_older_llamacpp_tells_how_full_its_cache_is_and_no_hits() -> None:
    text = "llamacpp:prompt_tokens_total 33\nllamacpp:kv_cache_usage_ratio 0.25\nllamacpp:requests_processing 2\n"
    assert read_engine_figures(text) == EngineFigures(kv_cache_ratio=0.25, running=2)


def test_several_engine_cores_are_added_up_and_the_fullest_cache_is_told() -> None:
    text = """\
vllm:num_requests_running{engine="0",model_name="a}b {c"} 2.0
vllm:num_requests_running{engine="1",model_name="a}b {c"} 3.0 1700000000000
vllm:num_requests_running_by_reason{engine="0"} 9
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
"""
    assert read_engine_figures(text) == EngineFigures(kv_cache_ratio=0.75, running=5)


def test_a_figure_under_its_old_and_its_new_name_counts_once() -> None:
    text = "".join(
        f"vllm:{old}prefix_cache_{what}_total 10\nvllm:{old}prefix_cache_{what}_created 1.7e9\n"
        for old in ("gpu_", "")
        for what in ("queries", "hits")
    )
    text += "vllm:gpu_cache_usage_perc 0.5\n"
    assert read_engine_figures(text) == EngineFigures(0.5, 10, 10)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e999", "1e17", "many", "0x1", "9" * 5000])
def test_a_value_that_cannot_be_is_left_out_and_the_others_are_told(value: str) -> None:
    text = f"vllm:num_requests_running {value}\nvllm:num_requests_waiting 4\n"
    assert read_engine_figures(text) == EngineFigures(waiting=4)


@pytest.mark.parametrize(
    "text", ["", "<html>", "x" * 2**20, "\n" * 2**20, "vllm:num_requests_running{" * 2**15]
)
def test_a_text_without_any_tells_nothing(text: str) -> None:
    assert read_engine_figures(text) is None


@given(
    st.lists(
        st.one_of(
            st.builds("{} {}".format, st.sampled_from(NAMES), st.sampled_from(VALUES)),
            st.builds(
                "{}{{{}}} {}".format, st.sampled_from(NAMES), st.text(max_size=9), st.sampled_from(VALUES)
            ),
            st.text(max_size=30),
        )
    )
)
def test_any_text_tells_numbers_that_can_be_or_none(lines: list[str]) -> None:
    figures = read_engine_figures("\n".join(lines))
    if figures is not None:
        told = [value for value in astuple(figures) if value is not None]
        assert told
        assert all(math.isfinite(value) and value >= 0 for value in told)
        assert figures.kv_cache_ratio is None or figures.kv_cache_ratio <= 1
