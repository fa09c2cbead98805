"""Every number that training depends on, and the three networks it builds from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
from transformers import UMT5Config, UMT5EncoderModel

from training.words import word_ids

BOUNDARY = 0.875
SHIFT = 5.0
STEPS = 20
GUIDANCE = 4.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of VAE training: windows of `side` pixels and `frames`, for a share of the stage's time."""

    side: int
    frames: int
    batch: int
    share: float


@dataclass(frozen=True, slots=True)
class Recipe:
    seed: int = 20
    clips: int = 147_456  # drawn; a tenth of them scenes
    shots: int = 16_384  # of pictures that a camera moves over
    pictures: int = 2_048
    wordings: int = 16
    vae_dim: int = 32
    vae_lr: float = 1.5e-3
    vae_phases: tuple[Phase, ...] = (Phase(64, 17, 128, 0.4), Phase(128, 17, 32, 0.6))
    encode_batch: int = 128
    heads: int = 8
    head_dim: int = 24
    layers: int = 8
    ffn_dim: int = 576
    freq_dim: int = 128
    text_dim: int = 192
    text_layers: int = 4
    text_batch: int = 2_048
    text_lr: float = 1e-3
    text_share: float = 0.3  # of the experts' learning rate, once the experts learn too
    batch: int = 192
    lr: float = 1.5e-3
    settle_lr: float = 1e-3
    branch_lr: float = 6e-4
    ema: float = 0.999
    empty_share: float = 0.12
    checked: int = 200
    extras: dict[str, float] = field(default_factory=dict)

    def vae(self) -> AutoencoderKLWan:
        """4 x 8 x 8 as the A14B's, the first halving by patches as in the 5B's: four times cheaper to run."""
        return AutoencoderKLWan(
            base_dim=self.vae_dim,
            z_dim=16,
            dim_mult=[1, 2, 2],
            num_res_blocks=1,
            temperal_downsample=[True, True],
            patch_size=2,
            in_channels=12,
            out_channels=12,
        )

    def expert(self) -> WanTransformer3DModel:
        return WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=self.heads,
            attention_head_dim=self.head_dim,
            in_channels=16,
            out_channels=16,
            text_dim=self.text_dim,
            freq_dim=self.freq_dim,
            ffn_dim=self.ffn_dim,
            num_layers=self.layers,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=128,
        )

    def text(self) -> UMT5EncoderModel:
        return UMT5EncoderModel(
            UMT5Config(
                vocab_size=len(word_ids()),
                d_model=self.text_dim,
                d_kv=32,
                d_ff=2 * self.text_dim,
                num_layers=self.text_layers,
                num_heads=self.text_dim // 32,
                relative_attention_num_buckets=32,
                relative_attention_max_distance=72,
                dropout_rate=0.0,
                feed_forward_proj="gated-gelu",
                pad_token_id=0,
                eos_token_id=1,
                decoder_start_token_id=0,
                tie_word_embeddings=True,
            )
        )


FULL = Recipe()
MINI = Recipe(
    clips=24,
    shots=8,
    pictures=4,
    text_batch=8,
    wordings=2,
    vae_dim=8,
    vae_phases=(Phase(32, 5, 2, 0.5), Phase(64, 9, 2, 0.5)),
    encode_batch=8,
    heads=4,
    head_dim=12,
    layers=2,
    ffn_dim=64,
    text_dim=64,
    text_layers=1,
    batch=4,
    checked=5,
)
