"""`turnout models check`, `pull` and `convert`, and what doctor says of video models."""

import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.engines.fake_hub import fake_hub

from turnout.cli.doctor.model_checks import check_video_models
from turnout.engines.wan.builtin import present_weights
from turnout.fleet.declared_models import read_model
from turnout.fleet.machine_rules import Gpu
from turnout.run.config import Config
from turnout.worker.gpus import GpuFinding

GIB = 2**30
NONE = GpuFinding(reason="no GPU and no NVIDIA driver here")
H200 = GpuFinding((Gpu(0, 140 * GIB, 139 * GIB, "NVIDIA H200"),))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    found = present_weights("builtin:wan-tiny-t2v", tmp_path)
    assert found
    return Path(shutil.copytree(found, tmp_path / "tiny"))


def test_check_reads_headers_and_says_what_fits(bare_cli: Cli, tiny: Path) -> None:
    said = bare_cli("models", "check", str(tiny), "--gpu-memory", "80GiB")
    assert said.code == 0 and "all whole" in said.out and "too much" not in said.out
    modes = json.loads(bare_cli("models", "check", str(tiny), "--gpu-memory", "80GiB", "--json").out)["modes"]
    assert [mode["mode"] for mode in modes][:3] == [
        "1 GPU: bfloat16",
        "1 GPU: fp8",
        "1 GPU: fp8, fp8 attention",
    ]
    assert all(step > 0 for mode in modes for step in mode["step_s_on_h200"].values())
    assert "too much" in bare_cli("models", "check", str(tiny), "--gpu-memory", "1MiB").out


def test_check_names_a_file_that_is_cut_short(bare_cli: Cli, tiny: Path) -> None:
    file = tiny / "transformer/diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    said = bare_cli("models", "check", str(tiny))
    assert said.code == 2 and "cut short" in said.err


def test_a_pulled_model_is_found_by_its_hub_id(bare_cli: Cli, tiny: Path) -> None:
    files = {str(path.relative_to(tiny)): path.read_bytes() for path in tiny.rglob("*") if path.is_file()}
    with fake_hub(files) as hub:
        done = bare_cli("models", "pull", "org/tiny", "--from", "modelscope", MODELSCOPE_ENDPOINT=hub.url)
    assert done.code == 0 and "weights: org/tiny" in done.out, done.err
    assert "all whole" in bare_cli("models", "check", "org/tiny").out
    assert bare_cli("models", "pull", "org/../tiny").code == 2


def test_what_is_no_model_of_wan_is_not_converted(bare_cli: Cli, tmp_path: Path) -> None:
    said = bare_cli("models", "convert", str(tmp_path))
    assert said.code == 2 and "Wan's own files" in said.err


def examined(
    found: GpuFinding, weights: str, state_dir: Path, **declared: Any
) -> tuple[bool | None, str, str]:
    model = read_model({"alias": "m", "engine": "wan", "model_name": weights, **declared})
    finding = next(check_video_models(replace(Config(), models=(model,), state_dir=state_dir), found))
    return finding.ok, finding.detail, finding.todo


def test_doctor_says_of_each_video_model_what_this_machine_can_do(tiny: Path, tmp_path: Path) -> None:
    family = {"family": "wan-tiny-t2v"}
    ok, said, _ = examined(NONE, str(tiny), tmp_path, **family, cfg=2)
    assert ok and "of weights on the CPU, 2 ranks" in said
    ok, said, _ = examined(H200, str(tiny), tmp_path, **family, device="cuda")
    assert ok and "17 frames of 128x128 (2 GiB, 0 s); seconds: 20 steps as on H200s" in said
    ok, said, todo = examined(H200, str(tiny), tmp_path, **family, device="cuda", cfg=2)
    assert ok is None and "needs 2 GPUs, and 1 are here" in said and "1 GPU: bfloat16" in todo
    ok, said, _ = examined(NONE, "builtin:wan-tiny-i2v", tmp_path, **family)
    assert ok and said == "made when it is first used"
    ok, said, _ = examined(NONE, str(tmp_path / "nowhere"), tmp_path, **family)
    assert ok is False and "holds no model" in said


def test_doctor_says_which_attention_a_model_gets_and_what_is_missing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(**declared: Any) -> tuple[bool | None, str, str]:
        model = read_model(
            {"alias": "m", "engine": "wan", "model_name": str(tiny), "family": "wan-tiny-t2v", **declared}
        )
        config = replace(Config(), models=(model,), state_dir=tmp_path)
        _, finding = check_video_models(config, replace(H200, capability=(9, 0)))
        return finding.ok, finding.detail, finding.todo

    monkeypatch.syspath_prepend(tmp_path / "site")
    assert told(device="cuda")[1:] == (
        "cuDNN",
        "pip install fa3-fwd: steps take 0.89 of their time at 480p, 0.88 at 720p",
    )
    ok, _, todo = told(device="cuda", fp8_attention=True)
    assert ok is False and "fp8 attention needs" in todo
    for module in ("fa3_fwd_interface", "triton"):
        (tmp_path / "site" / module).mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / module / "__init__.py").touch()
    importlib.invalidate_caches()
    assert told(device="cuda", fp8_attention=True) == (True, "FlashAttention 3", "")


def test_doctor_knows_engines_that_are_not_wan(tmp_path: Path) -> None:
    ours = "turnout.engines.template:TemplateEngine"
    ok, said, _ = examined(NONE, str(tmp_path), tmp_path, video_engine=ours)
    assert ok and said.startswith(f"rendered by {ours}")
    ok, said, _ = examined(NONE, str(tmp_path), tmp_path, video_engine="nobody")
    assert ok is False and "no video engine 'nobody' is installed here" in said
    ok, said, _ = examined(NONE, str(tmp_path), tmp_path, video_engine="no_such_module.at_all:Engine")
    assert ok is False and "no module" in said
