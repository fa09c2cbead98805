"""The Wan VAE over a whole clip at once, frames as a batch of pictures: what training runs instead of the chunks.

The published path goes frame by frame with caches and is bound by kernel launches. Its caches only carry what a
causal convolution over the whole clip sees anyway, so the result is the same (a test holds this); the 3-D
convolutions become 2-D ones over three neighbouring frames stacked as channels, which GPUs do best.
Only the non-residual VAE is covered, with or without patches.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from diffusers.models.autoencoders.autoencoder_kl_wan import (
    AutoencoderKLWan,
    WanAttentionBlock,
    WanCausalConv3d,
    WanMidBlock,
    WanResample,
    WanResidualBlock,
    WanRMS_norm,
)
from torch import nn


# Pictures are [B·T, C, H, W] with channels innermost in memory; as clips they are viewed as [B, T, H, W, C].
def _clips(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).unflatten(0, (count, -1))


def _pictures(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(0, 1).permute(0, 3, 1, 2)


def _conv2d(
    conv: nn.Conv2d | nn.Conv3d, x: torch.Tensor, padding: tuple[int, int] = (0, 0), stride: int = 1
) -> torch.Tensor:
    weight = conv.weight if conv.weight.ndim == 4 else conv.weight.transpose(1, 2).flatten(1, 2)
    return F.conv2d(x, weight.to(x.dtype), conv.bias.to(x.dtype), padding=padding, stride=stride)


def _triple(x: torch.Tensor) -> torch.Tensor:
    """Each frame of clips with the two before it (nothing before the first) as channels [B, T, H, W, 3C]."""
    frames = x.shape[1]
    x = F.pad(x, (0, 0, 0, 0, 0, 0, 2, 0))
    return torch.cat([x[:, i : i + frames] for i in range(3)], dim=-1)


def _unit(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """Rows [M, C] scaled to length √C, then by gamma: the Wan VAE's norm."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-12) * gamma


def _unit_silu_triple(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    return _triple(F.silu(_unit(x, gamma)).to(x.dtype))


class WholeVae:
    """Encodes and decodes whole clips with the networks of a VAE, in the precision of what it is given."""

    def __init__(self, vae: AutoencoderKLWan, *, compiled: bool = False):
        self._vae = vae
        self._patch = vae.config.patch_size or 1
        # The library's norm kernels take a block a row and rows here have 32 numbers: compiled is 10 times faster.
        # Stacking frames compiled saves its backward pass a dozen copies: a third of the whole step.
        self._triple = torch.compile(_triple, dynamic=False) if compiled else _triple
        self._unit_silu_triple = (
            torch.compile(_unit_silu_triple, dynamic=False) if compiled else _unit_silu_triple
        )

    def encode(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log-variance [B, t, 16, h, w] of the latents of frames [B, T, 3, H, W] in -1..1."""
        count, net, p = frames.shape[0], self._vae.encoder, self._patch
        x = frames.unflatten(-1, (-1, p)).unflatten(3, (-1, p))  # B T 3 h p w p
        x = x.permute(0, 1, 3, 5, 2, 6, 4).flatten(4)
        x = self._causal(net.conv_in, _pictures(x), count)
        for block in net.down_blocks:
            x = self._layer(block, x, count)
        x = self._layer(net.mid_block, x, count)
        x = self._act(net.norm_out, net.conv_out, x, count)
        x = self._causal(self._vae.quant_conv, x, count).unflatten(0, (count, -1)).float()
        mean, logvar = x.chunk(2, dim=2)
        return mean, logvar.clamp(-30, 20)

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Frames [B, T, 3, H, W], not clamped, of latents [B, t, 16, h, w]."""
        count, net, p = latents.shape[0], self._vae.decoder, self._patch
        x = latents.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        x = self._causal(net.conv_in, self._causal(self._vae.post_quant_conv, x, count), count)
        x = self._layer(net.mid_block, x, count)
        for up in net.up_blocks:
            for block in (*up.resnets, *(up.upsamplers or ())):
                x = self._layer(block, x, count)
        x = _clips(self._act(net.norm_out, net.conv_out, x, count), count)
        x = x.unflatten(-1, (-1, p, p)).permute(0, 1, 4, 2, 6, 3, 5)  # B T 3 h p w p
        return x.flatten(3, 4).flatten(4, 5).float()

    def _causal(self, conv: WanCausalConv3d, x: torch.Tensor, count: int) -> torch.Tensor:
        padding = (conv._padding[2], conv._padding[0])
        if conv.kernel_size[0] > 1:
            x = _pictures(self._triple(_clips(x, count)))
        return _conv2d(conv, x, padding)

    def _act(self, norm: WanRMS_norm, conv: WanCausalConv3d, x: torch.Tensor, count: int) -> torch.Tensor:
        """Norm, SiLU and a convolution over three frames."""
        stacked = self._unit_silu_triple(_clips(x, count), norm.gamma.flatten())
        return _conv2d(conv, _pictures(stacked), (conv._padding[2], conv._padding[0]))

    def _layer(self, block: nn.Module, x: torch.Tensor, count: int) -> torch.Tensor:
        match block:
            case WanResidualBlock():
                return self._residual(block, x, count)
            case WanResample():
                return self._resample(block, x, count)
            case WanMidBlock():
                x = self._residual(block.resnets[0], x, count)
                for attention, resnet in zip(block.attentions, block.resnets[1:], strict=True):
                    x = self._residual(resnet, _attention(attention, x), count)
                return x
        raise TypeError(f"no whole-clip path for {type(block).__name__}")

    def _residual(self, block: WanResidualBlock, x: torch.Tensor, count: int) -> torch.Tensor:
        short = (
            x if isinstance(block.conv_shortcut, nn.Identity) else self._causal(block.conv_shortcut, x, count)
        )
        x = self._act(block.norm1, block.conv1, x, count)
        return self._act(block.norm2, block.conv2, x, count) + short

    def _resample(self, block: WanResample, x: torch.Tensor, count: int) -> torch.Tensor:
        if block.mode == "upsample3d" and x.shape[0] > count:
            x = _clips(x, count)
            doubled = _clips(self._causal(block.time_conv, _pictures(x[:, 1:]), count), count)
            rest = torch.stack(doubled.chunk(2, dim=-1), dim=2).flatten(1, 2)
            x = _pictures(torch.cat([x[:, :1], rest], dim=1))  # the first frame stands for itself alone
        if block.mode.startswith("upsample"):
            return _conv2d(
                block.resample[1], F.interpolate(x, scale_factor=2.0, mode="nearest-exact"), padding=(1, 1)
            )
        x = _conv2d(block.resample[1], F.pad(x, (0, 1, 0, 1)), stride=2)
        if block.mode == "downsample3d" and x.shape[0] > count:
            x = _clips(x, count)
            joined = _pictures(torch.cat([x[:, 0:-2:2], x[:, 1:-1:2], x[:, 2::2]], dim=-1))
            x = _pictures(torch.cat([x[:, :1], _clips(_conv2d(block.time_conv, joined), count)], dim=1))
        return x


def _attention(block: WanAttentionBlock, x: torch.Tensor) -> torch.Tensor:
    inner = x.permute(0, 2, 3, 1)
    rows = _unit(inner, block.norm.gamma.flatten()).to(x.dtype).permute(0, 3, 1, 2)
    query, key, value = _conv2d(block.to_qkv, rows).flatten(2).transpose(1, 2).chunk(3, dim=-1)
    seen = F.scaled_dot_product_attention(query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)).squeeze(1)
    return x + _conv2d(block.proj, seen.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2))
