"""Which attention kernel a GPU will get is said before anything is loaded."""

import pytest

from turnout.engines.wan.kernel_rules import KernelOutlook, attention_of

SLOWER = "pip install fa3-fwd: steps take 0.89 of their time at 480p, 0.88 at 720p"
OTHER = "cuDNN, or FlashAttention 2 where that does not run"


@pytest.mark.parametrize(
    ("capability", "dtype", "flash3", "triton", "outlook"),
    [
        ((9, 0), "float32", True, True, KernelOutlook("PyTorch's own in float32")),
        (None, "float32", True, True, KernelOutlook("PyTorch's own in float32")),
        (None, "bfloat16", True, True, KernelOutlook("chosen when it is loaded")),
        ((8, 9), "bfloat16", True, True, KernelOutlook(OTHER)),
        ((12, 0), "bfloat16", True, True, KernelOutlook(OTHER)),
        ((9, 0), "bfloat16", False, True, KernelOutlook("cuDNN", SLOWER)),
        ((9, 0), "bfloat16", True, True, KernelOutlook("FlashAttention 3", fp8=True)),
        ((9, 0), "bfloat16", True, False, KernelOutlook("FlashAttention 3")),
    ],
)
def test_a_kernel_by_gpu_type_and_what_is_installed(
    capability: tuple[int, int] | None, dtype: str, flash3: bool, triton: bool, outlook: KernelOutlook
) -> None:
    assert attention_of(capability, dtype, flash3=flash3, triton=triton) == outlook
