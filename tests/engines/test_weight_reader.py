"""Weights from files to parameters: fused, cast, cut to a rank's rows; damaged files are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.engines.wan.weight_files import stored_tensors


def write(path: Path, tensors: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file(tensors, path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import torch

    generator = torch.Generator().manual_seed(0)
    tensors = {
        "q": torch.randn(4, 6, generator=generator),
        "k": torch.randn(4, 6, generator=generator).bfloat16(),
        "bias": torch.randn(5, generator=generator).bfloat16(),
        "unused": torch.randn(70_000, generator=generator),
    }
    write(tmp_path / "model.safetensors", tensors)
    return tmp_path


def module_of(**shapes: tuple[int, ...]) -> Any:
    import torch
    from torch import nn

    made = nn.Module()
    for name, shape in shapes.items():
        made.register_parameter(name, nn.Parameter(torch.full(shape, float("nan")), requires_grad=False))
    return made


def read(module: Any, made_of: dict[str, tuple[str, ...]], folder: Path, progress: Any = None) -> None:
    import torch

    from turnout.engines.wan.weight_reader import WeightReader

    stored = stored_tensors(folder)
    total = sum(stored[name].length for names in made_of.values() for name in names if name in stored)
    WeightReader(torch.device("cpu"), progress, total).fill(module, made_of, stored)


def test_tensors_of_any_precision_are_fused_and_cast(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    module = module_of(qk=(8, 6), bias=(5,))
    seen: list[tuple[int, int]] = []
    read(module, {"qk": ("q", "k"), "bias": ("bias",)}, folder, lambda *so_far: seen.append(so_far))
    stored = load_file(folder / "model.safetensors")
    assert module.qk.equal(torch.cat([stored["q"], stored["k"].float()]))
    assert module.bias.equal(stored["bias"].float())
    assert seen and max(seen)[0] == max(seen)[1]


def test_tensors_larger_than_a_buffer_are_read_in_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    from turnout.engines.wan import weight_reader

    monkeypatch.setattr(weight_reader, "_RUN_BYTES", 4096)
    module = module_of(all=(70_000,))
    read(module, {"all": ("unused",)}, folder)
    assert module.all.equal(load_file(folder / "model.safetensors")["unused"])


def test_neighbours_in_a_file_are_read_at_once() -> None:
    import torch

    from turnout.engines.wan.weight_reader import Piece, _runs

    def piece(offset: int, length: int, dtype: Any = torch.bfloat16, path: str = "a") -> Piece:
        return Piece(Path(path), offset, length, dtype, torch.empty(0))

    small = [piece(100, 20), piece(120, 8), piece(200, 10)]
    assert [len(run.pieces) for run in _runs(reversed(small))] == [3]
    assert len(_runs([piece(100, 20), piece(100 + (1 << 20), 8)])) == 2, "a large gap is not read"
    assert len(_runs([piece(100, 20), piece(120, 32 << 20)])) == 2, "a run fits into a buffer"
    assert len(_runs([piece(100, 6), piece(106, 8, torch.float32)])) == 2, "numbers stay whole"
    assert len(_runs([piece(0, 8), piece(8, 8, path="b")])) == 2


@pytest.mark.parametrize(
    ("shapes", "made_of", "why"),
    [
        ({"qk": (8, 6)}, {"qk": ("q", "v")}, "hold no v"),
        ({"qk": (9, 6)}, {"qk": ("q", "k")}, "54 numbers"),
        ({"qk": (8, 5)}, {"qk": ("q", "k")}, "does not fit"),
    ],
)
def test_weights_of_another_shape_are_refused(folder: Path, shapes: Any, made_of: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(module_of(**shapes), made_of, folder)


def test_damaged_files_are_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for damaged, why in [
        (whole[:-1], "cut short"),
        (b"", "no safetensors"),
        (b"\xff" * 64, "no safetensors"),
        (b"<html>" * 20, "no safetensors"),
    ]:
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=why):
            stored_tensors(folder)


def test_index_decides_which_files_count(folder: Path) -> None:
    import torch

    (folder / "model.safetensors").rename(folder / "part-1.safetensors")
    write(folder / "part-2.safetensors", {"more": torch.ones(3)})
    write(folder / "model.fp16.safetensors", {"other": torch.ones(3)})
    with pytest.raises(ValueError, match="3 safetensors files"):
        stored_tensors(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"q": "part-1.safetensors", "more": "part-2.safetensors"}}))
    assert {"q", "k", "more"} <= stored_tensors(folder).keys()
    assert "other" not in stored_tensors(folder)
    index.write_text(json.dumps({"weight_map": {"q": "../elsewhere.safetensors"}}))
    with pytest.raises(ValueError, match="outside"):
        stored_tensors(folder)


def test_text_encoder_is_read_as_its_library_reads_it(tmp_path: Path, tiny: Any) -> None:
    import torch

    from turnout.engines.wan.convert_classes import UMT5EncoderModel
    from turnout.engines.wan.load import _text_encoder
    from turnout.engines.wan.text_model import umt5_weight_map
    from turnout.engines.wan.weight_reader import WeightReader

    cpu = torch.device("cpu")
    for dtype in (torch.float32, torch.bfloat16):
        path = tiny("t2v") / "text_encoder"
        encoder = _text_encoder(path, dtype, cpu, WeightReader(cpu))
        theirs = UMT5EncoderModel.from_pretrained(path, dtype=dtype, local_files_only=True)
        stored = {theirs: ours for ours, (theirs,) in umt5_weight_map(len(encoder.blocks)).items()}
        ours = encoder.state_dict()
        assert {stored[name] for name, _ in theirs.named_parameters()} == ours.keys()
        for name, parameter in theirs.named_parameters():
            assert ours[stored[name]].equal(parameter) and ours[stored[name]].dtype == dtype
