# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Which attention kernel runs. It is chosen once, when a model is loaded, and tried on a small input first."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from turnout.engines.sequence import Attend

# The same functions under two names: upstream's build, and a wheel of the forward pass alone (pip install fa3-fwd).
# Not through HF `kernels`: that downloads code and runs it, and a rank never reaches a hub.
_FLASH3_MODULES = ("flash_attn_interface", "fa3_fwd_interface")
_HOPPER = (9, 0)
_PROBE_TOKENS = 256
# bf16 itself gives 0.2 to 0.4 % on this input.
_PROBE_ERROR = 0.02


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    name: str
    attend: Attend


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """PyTorch's own choice of kernel. On a CPU these are the very operations that diffusers performs."""
    q, k, v = (each.permute(0, 2, 1, 3) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3)


def choose_attention(device: torch.device, dtype: torch.dtype, head_width: int) -> AttentionKernel:
    """The fastest kernel that gives the right answer on this device."""
    if device.type == "cuda" and dtype is torch.bfloat16:
        for kernel in _fast_kernels(device):
            if _is_right(kernel, device, head_width):
                return kernel
    return AttentionKernel("sdpa", sdpa)


def _fast_kernels(device: torch.device) -> Iterator[AttentionKernel]:
    """In order of speed, as measured on an H200: 689, 566 and 355 TFLOP/s."""
    if torch.cuda.get_device_capability(device) == _HOPPER and (attend := _flash3()) is not None:
        yield AttentionKernel("flash-attention-3", attend)
    yield AttentionKernel("cudnn", _with_backend(SDPBackend.CUDNN_ATTENTION))
    yield AttentionKernel("flash-attention-2", _with_backend(SDPBackend.FLASH_ATTENTION))


def _flash3() -> Attend | None:
    for name in _FLASH3_MODULES:
        try:
            function: Any = importlib.import_module(name).flash_attn_func
        except (ImportError, OSError, AttributeError):
            continue  # not installed, or built for another torch

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, run: Any = function) -> torch.Tensor:
            out: Any = run(q, k, v)
            return out[0] if isinstance(out, tuple) else out

        return attend
    return None


def _with_backend(backend: SDPBackend) -> Attend:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return sdpa(q, k, v)

    return attend


def _is_right(kernel: AttentionKernel, device: torch.device, head_width: int) -> bool:
    generator = torch.Generator(device).manual_seed(0)
    shape = (3, 1, _PROBE_TOKENS, 2, head_width)
    q, k, v = torch.randn(shape, generator=generator, device=device).bfloat16().unbind(0)
    with sdpa_kernel(SDPBackend.MATH):
        expected = sdpa(q.float(), k.float(), v.float())
    try:
        error = (kernel.attend(q, k, v).float() - expected).norm() / expected.norm()
    except RuntimeError:
        return False  # no kernel for this device, head width or dtype
    return bool(error < _PROBE_ERROR)  # also False when it is not a number
