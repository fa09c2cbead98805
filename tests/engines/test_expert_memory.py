"""The expert that is not at work may lie in host memory: the clip is the same."""

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.test_lora import write

from turnout.engines.base import EngineSetup, Parallel, Unrenderable
from turnout.tasks.video_rules import Lora, LoraUse, VideoSpec


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU with room for a clip beside one expert."""
    from turnout.engines.wan.wan_model import WanModel

    def free_bytes(model: WanModel) -> int:
        needed = model.memory_plan().needed_bytes(96, 64, 9)
        return needed - 1 + model.memory.away_bytes

    monkeypatch.setattr(WanModel, "free_bytes", free_bytes)


def sizes(engine: Any) -> list[int]:
    return [sum(each.numel() for each in expert.parameters()) for expert in engine.model.experts]


def steps(rendering: Any) -> Iterator[Any]:
    while rendering.step < rendering.of:
        rendering.advance()
        yield rendering


@pytest.mark.parametrize("fp8", [False, True])
def test_expert_comes_when_its_steps_begin_and_the_other_leaves(
    tiny: Callable[[str], Path], finish: Any, spec: VideoSpec, one_at_a_time: None, fp8: bool
) -> None:
    from turnout.engines.wan.load import make_engine

    engine = make_engine(EngineSetup(tiny("t2v"), Parallel(), fp8=fp8))
    full = sizes(engine)
    here = [[size > 0 for size in sizes(engine)] for _ in steps(engine.begin(spec, None))]
    assert here[0] == [True, False] and here[-1] == [False, True]
    assert all(sum(each) == 1 for each in here)
    swapped, again = (finish(engine.begin(spec, None)) for _ in range(2))
    engine.model.memory.choose(0, 1 << 40)
    assert sizes(engine) == full
    assert swapped.equal(again)


@pytest.mark.parametrize(("fp8", "apart"), [(False, False), (False, True), (True, False)])
def test_clips_have_the_bits_of_a_gpu_that_holds_all(
    tiny: Callable[[str], Path],
    tmp_path: Path,
    finish: Any,
    spec: VideoSpec,
    one_at_a_time: None,
    monkeypatch: pytest.MonkeyPatch,
    fp8: bool,
    apart: bool,
) -> None:
    """Also while adapters come and go: what lies on the host follows."""
    from turnout.engines.wan.load import make_engine

    lora = Lora("style", str(write(tmp_path / "lora", "original")))
    adapted = replace(spec, loras=(LoraUse("style", 1.0),))
    engines = [
        make_engine(EngineSetup(tiny("t2v"), Parallel(), fp8=fp8, loras=(lora,), loras_apart=apart))
        for _ in range(2)
    ]
    clips: list[list[Any]] = []
    for engine in engines:
        clips.append([finish(engine.begin(each, None)) for each in (spec, adapted, spec)])
        monkeypatch.undo()  # the second one holds all
    assert 0 in sizes(engines[0]) and 0 not in sizes(engines[1])
    assert all(one.equal(other) for one, other in zip(*clips, strict=True))
    assert clips[0][0].equal(clips[0][2]) and not clips[0][0].equal(clips[0][1])


def test_all_stay_where_the_host_has_no_room(
    tiny: Callable[[str], Path], spec: VideoSpec, one_at_a_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnout.engines.wan import expert_memory
    from turnout.engines.wan.load import make_engine

    monkeypatch.setattr(expert_memory, "_available_bytes", lambda: 1 << 30)
    engine = make_engine(EngineSetup(tiny("t2v"), Parallel()))
    with pytest.raises(Unrenderable, match="would fit"):
        engine.begin(spec, None)
    assert 0 not in sizes(engine)


def test_loading_makes_room_for_what_comes_next(
    tiny: Callable[[str], Path],
    engine: Callable[[str], Any],
    finish: Any,
    spec: VideoSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU that holds neither both experts nor an expert and the text encoder."""
    from turnout.engines.wan import load

    monkeypatch.setattr(load, "free_bytes", lambda _: 0)
    small = load.make_engine(EngineSetup(tiny("t2v"), Parallel()))
    assert sizes(small) == [0, 0]
    assert finish(small.begin(spec, None)).equal(finish(engine("t2v").begin(spec, None)))


@pytest.mark.usefixtures("uncollected")
def test_weights_leave_with_their_engine(tiny: Callable[[str], Path], finish: Any, spec: VideoSpec) -> None:
    """Not when the collector happens to run: until then the next engine would have no room beside them."""
    from turnout.engines.wan.load import make_engine

    engine = make_engine(EngineSetup(tiny("t2v"), Parallel()))
    finish(engine.begin(spec, None))
    experts = [weakref.ref(expert) for expert in engine.model.experts]
    del engine
    assert [expert() for expert in experts] == [None, None]


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
