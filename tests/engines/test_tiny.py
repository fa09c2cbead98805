"""Tiny models stand in for the published ones."""

from collections.abc import Callable
from pathlib import Path

import pytest


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_same_seed_gives_the_same_model(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    from turnout.engines.wan.tiny import make_tiny

    again, other = make_tiny("t2v", tmp_path / "again"), make_tiny("t2v", tmp_path / "other", seed=1)
    assert contents(again) == contents(tiny("t2v"))
    weights = "transformer/diffusion_pytorch_model.safetensors"
    assert contents(other)[weights] != contents(again)[weights]


@pytest.mark.parametrize("kind", ["t2v", "i2v", "ti2v"])
def test_tiny_models_lie_on_disk_like_the_published_ones(tiny: Callable[[str], Path], kind: str) -> None:
    root = tiny(kind)
    folders = {"scheduler", "text_encoder", "tokenizer", "transformer", "vae"}
    folders |= {"transformer_2"} if kind != "ti2v" else set()
    assert {path.name for path in root.iterdir()} == folders | {"model_index.json"}
    assert sum(map(len, contents(root).values())) < 8_000_000


def test_making_leaves_nothing_behind_and_overwrites_nothing(tmp_path: Path) -> None:
    from turnout.engines.wan.tiny import make_tiny

    path = make_tiny("ti2v", tmp_path / "models" / "tiny")
    before = contents(path)
    with pytest.raises(FileExistsError):
        make_tiny("t2v", path)
    assert contents(path) == before
    assert list(path.parent.iterdir()) == [path]


def test_failed_making_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnout.engines.wan import tiny as module

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module, "make_scheduler", fail)
    with pytest.raises(OSError, match="disk full"):
        module.make_tiny("ti2v", tmp_path / "tiny")
    assert list(tmp_path.iterdir()) == []


def test_tokenizer_ends_prompts_and_knows_what_it_does_not_know(tiny: Callable[[str], Path]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny("t2v") / "tokenizer", local_files_only=True)
    ids = tokenizer("fox é").input_ids
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.unk_token_id in ids
    assert tokenizer.decode(tokenizer("a red fox").input_ids, skip_special_tokens=True) == "a red fox"
