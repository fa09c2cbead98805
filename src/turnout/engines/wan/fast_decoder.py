# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false
# pyright: reportPrivateImportUsage=false
"""Makes diffusers' Wan VAE decode fast on a GPU: bf16, channels last, and fewer passes over memory.

The weights and the order of layers stay. What changes: RMS norm and SiLU are one kernel, convolutions pad by
themselves instead of copying their input to a padded one, and upsampling does not pass through fp32.
Import this module only where Triton is installed.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn

_TILE = 4096
"""Numbers that one program of the norm's kernel works on."""


def speed_up_decoder(vae: Any) -> None:
    """Turn the decoding half of an AutoencoderKLWan to bf16, in place; encoding stays as it was."""
    for part in (vae.decoder, vae.post_quant_conv):
        part.to(torch.bfloat16)
        for module in part.modules():
            if isinstance(module, nn.Conv3d):
                _channels_last(module, torch.channels_last_3d)
            elif isinstance(module, nn.Conv2d):
                _channels_last(module, torch.channels_last)
    for module in list(vae.decoder.modules()):
        _replace_layers(module)


def _channels_last(convolution: nn.Module, form: torch.memory_format) -> None:
    convolution.weight.data = convolution.weight.data.contiguous(memory_format=form)


def _replace_layers(parent: nn.Module) -> None:
    # Where a module has an activation, it follows each of its norms.
    fused = isinstance(getattr(parent, "nonlinearity", None), nn.SiLU)
    for name, child in list(parent.named_children()):
        match type(child).__name__:
            case "WanRMS_norm":
                setattr(parent, name, RmsNormSilu(child, fused))
            case "WanCausalConv3d":
                setattr(parent, name, CausalConv3d(child))
            case "WanUpsample":
                setattr(parent, name, nn.Upsample(scale_factor=(2.0, 2.0), mode="nearest-exact"))
            case _:
                pass
    if fused:
        parent.nonlinearity = nn.Identity()


class RmsNormSilu(nn.Module):
    """RMS norm over the channels, and SiLU where one follows."""

    def __init__(self, norm: Any, silu: bool) -> None:
        super().__init__()
        self.gamma = norm.gamma
        self._silu = silu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm_silu(x, self.gamma, self._silu)


class CausalConv3d(nn.Module):
    """A convolution that looks back in time only: at frames kept from the chunk before, or at zeros."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.weight, self.bias = inner.weight, inner.bias
        self._stride = inner.stride
        self._back = inner._padding[4]
        self._padding = (0, inner._padding[2], inner._padding[0])

    def forward(self, x: torch.Tensor, cache_x: torch.Tensor | None = None) -> torch.Tensor:
        missing = self._back
        if cache_x is not None and missing > 0:
            x = torch.cat([cache_x, x], dim=2)
            missing -= cache_x.shape[2]
        if missing > 0:
            x = F.pad(x, (0, 0, 0, 0, missing, 0))
        return F.conv3d(x, self.weight, self.bias, self._stride, self._padding)


def rms_norm_silu_plain(x: torch.Tensor, gamma: torch.Tensor, silu: bool) -> torch.Tensor:
    """The kernel's twin."""
    normed = F.normalize(x.float(), dim=1) * x.shape[1] ** 0.5 * gamma.float()
    return (F.silu(normed) if silu else normed).type_as(x)


def rms_norm_silu(x: torch.Tensor, gamma: torch.Tensor, silu: bool) -> torch.Tensor:
    channels = x.shape[1]
    x = x.contiguous(memory_format=torch.channels_last_3d if x.dim() == 5 else torch.channels_last)
    out = torch.empty_like(x)
    pixels = x.numel() // channels
    block = triton.next_power_of_2(channels)
    rows = max(1, _TILE // block)
    _rms_norm_silu_kernel[(triton.cdiv(pixels, rows),)](
        x,
        gamma,
        out,
        pixels,
        channels,
        channels**0.5,
        SILU=silu,
        ROWS=rows,
        BLOCK=block,
        num_warps=4,
    )
    return out


@triton.jit
def _rms_norm_silu_kernel(
    x_ptr,
    gamma_ptr,
    out_ptr,
    pixels,
    channels,
    root,
    SILU: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pixel = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, BLOCK)
    inside = (pixel < pixels)[:, None] & (channel < channels)[None, :]
    here = pixel[:, None] * channels + channel[None, :]
    x = tl.load(x_ptr + here, mask=inside, other=0.0).to(tl.float32)
    gamma = tl.load(gamma_ptr + channel, mask=channel < channels, other=0.0).to(tl.float32)
    length = tl.sqrt(tl.sum(x * x, 1))
    y = x * (root / tl.maximum(length, 1e-12))[:, None] * gamma[None, :]
    if SILU:
        y = y * tl.sigmoid(y)
    tl.store(out_ptr + here, y.to(tl.bfloat16), mask=inside)
