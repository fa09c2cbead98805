"""The text encoder of our own against transformers', and what rendering does not import."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROMPTS = ["a red ball moves right", "红色圆形在白色背景上向右移动 & a &amp; b", "", "many words " * 900]


@pytest.fixture(params=["wan-tiny-t2v", "made"])
def weights(request: pytest.FixtureRequest, tiny: Any, tmp_path: Path) -> Path:
    """The shipped ones, and random ones with the tokenizer that UMT5 has."""
    from turnout.engines.wan.builtin import find_weights

    return tiny("t2v") if request.param == "made" else find_weights(f"builtin:{request.param}", tmp_path)


@pytest.mark.parametrize("prompt", PROMPTS, ids=["english", "chinese", "nothing", "cut off"])
def test_a_prompt_means_what_it_means_to_transformers(weights: Path, prompt: str) -> None:
    import torch
    from transformers import AutoTokenizer, UMT5EncoderModel

    from turnout.engines.base import EngineSetup, Parallel
    from turnout.engines.wan.load import make_engine
    from turnout.engines.wan.text_encoder import MAX_TOKENS, clean

    leader = make_engine(EngineSetup(weights, Parallel())).model.leader
    assert leader is not None
    ours = leader.text.encode(prompt)
    tokens: Any = AutoTokenizer.from_pretrained(weights / "tokenizer")(
        [clean(prompt)], padding="max_length", max_length=MAX_TOKENS, truncation=True, return_tensors="pt"
    )
    encoder: Any = UMT5EncoderModel.from_pretrained(weights / "text_encoder", dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = encoder(tokens.input_ids, tokens.attention_mask).last_hidden_state
    theirs = theirs * tokens.attention_mask[..., None]
    assert ours.shape == theirs.shape
    assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


def test_rendering_imports_little_of_diffusers() -> None:
    """Each of these takes half a second of CPU or more, before the first step of every gang, and of each that is formed again."""
    program = """
import sys
from pathlib import Path
from turnout.engines.base import EngineSetup, Parallel
from turnout.engines.wan.builtin import find_weights
from turnout.engines.wan.load import make_engine
from turnout.fleet.family_rules import FAMILIES
from turnout.tasks.video_rules import RequestedVideo, settle
dear = {"transformers", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor", "sympy"}
engine = make_engine(EngineSetup(find_weights("builtin:wan-tiny-ti2v", Path()), Parallel()))
spec = settle(RequestedVideo("a red ball", size="64x64", frames=5, steps=1), FAMILIES["wan-tiny-ti2v"], ulysses=1, seed=1)
rendering = engine.begin(spec, None)
rendering.advance()
assert list(rendering.decode())
assert not dear & sys.modules.keys(), dear & sys.modules.keys()
import diffusers
from turnout.engines.wan.library_classes import AutoencoderKLWan
assert diffusers.AutoencoderKLWan is AutoencoderKLWan
from diffusers import WanTransformer3DModel
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
