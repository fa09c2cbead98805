"""Which attention kernel a GPU will get, and what is missing for a faster one: said before anything is loaded. Pure."""

from dataclasses import dataclass

# The same functions under two names: upstream's build, and a wheel of the forward pass alone (pip install fa3-fwd).
FLASH3_MODULES = ("flash_attn_interface", "fa3_fwd_interface")
HOPPER = (9, 0)
FP8_ATTENTION_NEEDS = (
    "fp8 attention needs bfloat16, a Hopper GPU, Triton and FlashAttention 3 (pip install fa3-fwd)"
)


@dataclass(frozen=True, slots=True)
class KernelOutlook:
    """`missing` is what to install, and what for; empty when nothing is. `fp8`: clips may ask for fp8 attention."""

    name: str
    missing: str = ""
    fp8: bool = False


def attention_of(
    capability: tuple[int, int] | None, dtype: str, *, flash3: bool, triton: bool
) -> KernelOutlook:
    """`flash3` and `triton` say what is installed. A kernel that fails its trial when the model is loaded gives way to the next."""
    if dtype != "bfloat16":
        return KernelOutlook(f"PyTorch's own in {dtype}")
    if capability is None:
        return KernelOutlook("chosen when it is loaded")
    if capability != HOPPER:
        return KernelOutlook("cuDNN, or FlashAttention 2 where that does not run")
    if not flash3:
        return KernelOutlook(
            "cuDNN", "pip install fa3-fwd: steps take 0.89 of their time at 480p, 0.88 at 720p"
        )
    return KernelOutlook("FlashAttention 3", fp8=triton)
