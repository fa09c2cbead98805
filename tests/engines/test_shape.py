"""What json configs say of a model, without loading it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.engines.wan.shape import read_shape


@pytest.mark.parametrize(
    ("kind", "experts", "takes", "requires"),
    [("t2v", 2, False, False), ("i2v", 2, True, True), ("ti2v", 1, True, False)],
)
def test_shape_tells_the_kinds_apart(
    tiny: Callable[[str], Path], kind: str, experts: int, takes: bool, requires: bool
) -> None:
    shape = read_shape(tiny(kind))
    assert (shape.kind, shape.experts, shape.takes_image, shape.requires_image) == (
        kind,
        experts,
        takes,
        requires,
    )
    assert (shape.heads, shape.size_multiple, shape.scale_temporal) == (4, (16, 16), 4)


def a14b(root: Path, **index: object) -> Path:
    """The configs of the published text-to-video model, as far as they matter."""
    (root / "transformer").mkdir(parents=True)
    (root / "vae").mkdir()
    expert = ["diffusers", "WanTransformer3DModel"]
    about = {"_class_name": "WanPipeline", "boundary_ratio": 0.875, "transformer_2": expert, **index}
    (root / "model_index.json").write_text(json.dumps(about))
    config = {"num_attention_heads": 40, "num_layers": 40, "in_channels": 16, "patch_size": [1, 2, 2]}
    (root / "transformer" / "config.json").write_text(json.dumps(config))
    (root / "vae" / "config.json").write_text(json.dumps({"z_dim": 16}))
    return root


def test_published_sizes_give_the_published_token_counts(tmp_path: Path) -> None:
    shape = read_shape(a14b(tmp_path))
    assert shape.tokens(832, 480, 81) == 32_760
    assert shape.tokens(1280, 720, 81) == 75_600
    assert (shape.defaults.steps, shape.defaults.shift, shape.defaults.guidance) == (40, 12.0, (3.0, 4.0))


def test_shape_of_the_5b_model_follows_its_own_vae(tmp_path: Path) -> None:
    root = a14b(tmp_path, boundary_ratio=None, expand_timesteps=True, transformer_2=[None, None])
    vae = {"z_dim": 48, "scale_factor_spatial": 16, "scale_factor_temporal": 4, "patch_size": 2}
    (root / "vae" / "config.json").write_text(json.dumps(vae))
    shape = read_shape(root)
    assert shape.size_multiple == (32, 32)
    assert shape.tokens(1280, 704, 121) == 27_280
    assert shape.fault(1280, 720, 121) is not None
    assert shape.defaults.fps == 24


@pytest.mark.parametrize("clip", [(96, 64, 10), (90, 64, 9), (96, 0, 9), (96, 64, 0)])
def test_impossible_clips_have_a_fault(tmp_path: Path, clip: tuple[int, int, int]) -> None:
    assert read_shape(a14b(tmp_path)).fault(*clip) is not None


@pytest.mark.parametrize("index", [{"_class_name": "FluxPipeline"}, {"boundary_ratio": None}])
def test_foreign_or_broken_models_are_refused(tmp_path: Path, index: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        read_shape(a14b(tmp_path, **index))


def test_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model_index"):
        read_shape(tmp_path / "nothing")


def test_contract_and_shape_import_no_torch() -> None:
    code = "import sys, turnout.engines.base, turnout.engines.wan.shape; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
