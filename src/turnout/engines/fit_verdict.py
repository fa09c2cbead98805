"""Whether a machine could run a model, and why: in parts that whoever shows it says in the reader's language."""

from collections.abc import Mapping
from dataclasses import dataclass, field

WORDS: Mapping[str, str] = {
    "mode": "{mode}",
    "weights": "{size} of weights",
    "no_weights": "it has no weights in a format that is known",
    "no_gpu": "there is no GPU here to judge by",
    "gpus_missing": "needs {needed} GPUs, and {here} are here",
    "gpus_have": "{gpus} GPUs here have {size}",
    "gpu_too_small": "needs {needed}, and a GPU has {has}",
    "sizes": "{frames} frames of {sizes}",
    "sizes_idle_away": "with the idle expert in host memory {frames} frames of {sizes}",
    "sizes_too_large": "not {sizes}",
}


@dataclass(frozen=True, slots=True)
class VerdictPart:
    code: str
    params: Mapping[str, str | int] = field(default_factory=dict[str, str | int])

    def __str__(self) -> str:
        return WORDS[self.code].format(**self.params)


def part(code: str, **params: str | int) -> VerdictPart:
    return VerdictPart(code, params)


@dataclass(frozen=True, slots=True)
class FitVerdict:
    """`fits` is None where there is no GPU to judge by."""

    fits: bool | None
    parts: tuple[VerdictPart, ...]

    @property
    def words(self) -> str:
        return "; ".join(map(str, self.parts))
