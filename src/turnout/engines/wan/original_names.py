"""How Wan's own files name the tensors that diffusers' format has. Facts of two published layouts; no torch here."""

import re

# In this order: later ones see what earlier ones made. Wan's second norm is diffusers' third, and the other way round.
_TRANSFORMER = (
    ("time_embedding.0.", "condition_embedder.time_embedder.linear_1."),
    ("time_embedding.2.", "condition_embedder.time_embedder.linear_2."),
    ("text_embedding.0.", "condition_embedder.text_embedder.linear_1."),
    ("text_embedding.2.", "condition_embedder.text_embedder.linear_2."),
    ("time_projection.1.", "condition_embedder.time_proj."),
    ("head.modulation", "scale_shift_table"),
    ("head.head.", "proj_out."),
    (".modulation", ".scale_shift_table"),
    (".self_attn.", ".attn1."),
    (".cross_attn.", ".attn2."),
    (".q.", ".to_q."),
    (".k.", ".to_k."),
    (".v.", ".to_v."),
    (".o.", ".to_out.0."),
    (".ffn.0.", ".ffn.net.0.proj."),
    (".ffn.2.", ".ffn.net.2."),
    (".norm3.", ".norm2."),
)
_TEXT_ENCODER = (
    (r"^token_embedding\.", "shared."),
    (r"^norm\.", "encoder.final_layer_norm."),
    (r"^blocks\.(\d+)\.norm1\.", r"encoder.block.\1.layer.0.layer_norm."),
    (r"^blocks\.(\d+)\.attn\.([qkvo])\.", r"encoder.block.\1.layer.0.SelfAttention.\2."),
    (
        r"^blocks\.(\d+)\.pos_embedding\.embedding\.",
        r"encoder.block.\1.layer.0.SelfAttention.relative_attention_bias.",
    ),
    (r"^blocks\.(\d+)\.norm2\.", r"encoder.block.\1.layer.1.layer_norm."),
    (r"^blocks\.(\d+)\.ffn\.gate\.0\.", r"encoder.block.\1.layer.1.DenseReluDense.wi_0."),
    (r"^blocks\.(\d+)\.ffn\.fc1\.", r"encoder.block.\1.layer.1.DenseReluDense.wi_1."),
    (r"^blocks\.(\d+)\.ffn\.fc2\.", r"encoder.block.\1.layer.1.DenseReluDense.wo."),
)
_RESIDUAL = (
    (".residual.0.", ".norm1."),
    (".residual.2.", ".conv1."),
    (".residual.3.", ".norm2."),
    (".residual.6.", ".conv2."),
    (".shortcut.", ".conv_shortcut."),
)
_AUTOENCODER = (
    (r"^conv1\.", "quant_conv."),
    (r"^conv2\.", "post_quant_conv."),
    (r"^(encoder|decoder)\.conv1\.", r"\1.conv_in."),
    (r"^(encoder|decoder)\.head\.0\.", r"\1.norm_out."),
    (r"^(encoder|decoder)\.head\.2\.", r"\1.conv_out."),
    (r"^(encoder|decoder)\.middle\.1\.", r"\1.mid_block.attentions.0."),
    (r"^(encoder|decoder)\.middle\.0\.", r"\1.mid_block.resnets.0."),
    (r"^(encoder|decoder)\.middle\.2\.", r"\1.mid_block.resnets.1."),
    # Wan2.2: blocks inside of blocks; what is no residual block resamples.
    (
        r"^encoder\.downsamples\.(\d+)\.downsamples\.(\d+)\.(residual|shortcut)",
        r"encoder.down_blocks.\1.resnets.\2.\3",
    ),
    (
        r"^decoder\.upsamples\.(\d+)\.upsamples\.(\d+)\.(residual|shortcut)",
        r"decoder.up_blocks.\1.resnets.\2.\3",
    ),
    (r"^encoder\.downsamples\.(\d+)\.downsamples\.\d+\.", r"encoder.down_blocks.\1.downsampler."),
    (r"^decoder\.upsamples\.(\d+)\.upsamples\.\d+\.", r"decoder.up_blocks.\1.upsampler."),
    # Wan2.1: one flat list, which diffusers kept for the encoder only.
    (r"^encoder\.downsamples\.", "encoder.down_blocks."),
)
_FLAT_DECODER = re.compile(r"decoder\.upsamples\.(\d+)\.(.*)")
_RESNETS = 3
"""Of each block of Wan2.1's decoder; a layer that resamples comes after them."""


def transformer_name(name: str) -> str:
    """Also of the tensors of an adapter, whose names go on after the layer's."""
    padded = f".{name.removeprefix('model.diffusion_model.').removeprefix('diffusion_model.')}"
    for theirs, ours in _TRANSFORMER:
        padded = padded.replace(theirs, ours)
    return padded.removeprefix(".")


def text_encoder_name(name: str) -> str:
    return _rewritten(name, _TEXT_ENCODER)


def autoencoder_name(name: str) -> str:
    flat = _FLAT_DECODER.fullmatch(name)
    if flat and not flat[2].startswith("upsamples."):
        block, place = divmod(int(flat[1]), _RESNETS + 1)
        part = "upsamplers.0" if place == _RESNETS else f"resnets.{place}"
        name = f"decoder.up_blocks.{block}.{part}.{flat[2]}"
    name = _rewritten(name, _AUTOENCODER)
    for theirs, ours in _RESIDUAL:
        name = name.replace(theirs, ours)
    return name


def _rewritten(name: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, ours in rules:
        made, count = re.subn(pattern, ours, name)
        if count:
            return made
    return name
