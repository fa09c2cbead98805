"""A tiny LTX-Video with random weights, in the on-disk format of the published ones."""

from pathlib import Path
from typing import Any, cast

import diffusers
import torch
import transformers

from turnout.engines.wan.tiny import _tokenizer

_HF: Any = diffusers
_TF: Any = transformers


def make_tiny_ltx(folder: Path) -> Path:
    tokenizer = _tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformer = _HF.LTXVideoTransformer3DModel(
            in_channels=8,
            out_channels=8,
            num_attention_heads=4,
            attention_head_dim=8,
            cross_attention_dim=32,
            num_layers=2,
            caption_channels=32,
        )
        vae = _HF.AutoencoderKLLTXVideo(
            latent_channels=8,
            block_out_channels=(8, 8, 8, 8),
            decoder_block_out_channels=(8, 8, 8, 8),
            layers_per_block=(1, 1, 1, 1, 1),
            decoder_layers_per_block=(1, 1, 1, 1, 1),
        )
        text = _TF.T5EncoderModel(
            _TF.T5Config(
                vocab_size=len(cast("Any", tokenizer)),
                d_model=32,
                d_kv=8,
                d_ff=64,
                num_layers=1,
                num_heads=4,
                pad_token_id=0,
                eos_token_id=1,
            )
        )
    # The published scheduler's settings.
    scheduler = _HF.FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True,
        base_shift=0.95,
        max_shift=2.05,
        base_image_seq_len=1024,
        shift_terminal=0.1,
    )
    _HF.LTXPipeline(
        scheduler=scheduler,
        vae=vae.eval(),
        text_encoder=text.eval(),
        tokenizer=tokenizer,
        transformer=transformer,
    ).save_pretrained(folder)
    return folder
