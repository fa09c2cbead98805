# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Which attention kernel runs. It is chosen once, when a model is loaded, and tried on a small input first."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from turnout.engines.sequence import Attend
from turnout.engines.wan import fp8_attention
from turnout.engines.wan.kernel_rules import FLASH3_MODULES, HOPPER

_PROBE_TOKENS = 256
# bf16 itself gives 0.2 to 0.4 % on this input.
_PROBE_ERROR = 0.02
# fp8 gives 6 %: on noise, whose attention is nearly nothing but rounding. Sums that lost their bits would give 20 % or more.
_PROBE_ERROR_FP8 = 0.1


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
            if _is_right(kernel, device, head_width, _PROBE_ERROR):
                return kernel
    return AttentionKernel("sdpa", sdpa)


@cache
def choose_fp8_attention(device: torch.device, dtype: torch.dtype, head_width: int) -> AttentionKernel | None:
    """The kernel of clips that ask for fp8 attention, None where there is none. A CPU has the plain twin, which is not fast."""
    if device.type != "cuda":
        return AttentionKernel("fp8 in plain PyTorch", fp8_attention.attend)
    on_hopper = dtype is torch.bfloat16 and torch.cuda.get_device_capability(device) == HOPPER
    if not on_hopper or importlib.util.find_spec("triton") is None or (flash3 := find_flash3()) is None:
        return None
    from turnout.engines.wan.triton_attention import in_fp8

    kernel = AttentionKernel("flash-attention-3 in fp8", in_fp8(flash3))
    return kernel if _is_right(kernel, device, head_width, _PROBE_ERROR_FP8) else None


def _fast_kernels(device: torch.device) -> Iterator[AttentionKernel]:
    """In order of speed, as measured on an H200: 689, 566 and 355 TFLOP/s."""
    if torch.cuda.get_device_capability(device) == HOPPER and (flash3 := find_flash3()) is not None:

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out: Any = flash3(q, k, v)
            return out[0] if isinstance(out, tuple) else out

        yield AttentionKernel("flash-attention-3", attend)
    yield AttentionKernel("cudnn", _with_backend(SDPBackend.CUDNN_ATTENTION))
    yield AttentionKernel("flash-attention-2", _with_backend(SDPBackend.FLASH_ATTENTION))


def find_flash3() -> Callable[..., Any] | None:
    """Not through HF `kernels`: that downloads code and runs it, and a rank never reaches a hub."""
    for name in FLASH3_MODULES:
        try:
            return importlib.import_module(name).flash_attn_func
        except (ImportError, OSError, AttributeError):
            continue  # not installed, or built for another torch
    return None


def _with_backend(backend: SDPBackend) -> Attend:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return sdpa(q, k, v)

    return attend


def _is_right(kernel: AttentionKernel, device: torch.device, head_width: int, limit: float) -> bool:
    generator = torch.Generator(device).manual_seed(0)
    shape = (3, 1, _PROBE_TOKENS, 2, head_width)
    q, k, v = torch.randn(shape, generator=generator, device=device).bfloat16().unbind(0)
    with sdpa_kernel(SDPBackend.MATH):
        expected = sdpa(q.float(), k.float(), v.float())
    try:
        error = (kernel.attend(q, k, v).float() - expected).norm() / expected.norm()
    except RuntimeError:
        return False  # no kernel for this device, head width or dtype
    return bool(error < limit)  # also False when it is not a number
