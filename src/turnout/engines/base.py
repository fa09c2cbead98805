"""What a gang may ask of a video engine: the public contract. No torch here, nothing that computes.

An engine is a class (or a function) that takes an `EngineSetup` and has the methods of `VideoEngine`; `docs/engines.md`
tells how to write one, `contract.py` checks it, `template.py` is one to start from. Every rank of a gang holds one engine and
calls the same methods in the same order; methods marked *rank 0* are the exception and never communicate. Errors raised
on purpose:

    ValueError
    └── EngineError
        ├── Unrenderable         this model, or this gang, cannot render that spec (or read that image)
        │   └── RanksLost        the same, found out while the other ranks were computing: they cannot go on
        └── CheckpointRefused    the checkpoint is damaged, or was made for another spec
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from turnout.fleet.model_rules import Dtype
from turnout.tasks.video_rules import Lora, VideoSpec

Progress = Callable[[int, int], None]
"""Bytes of the weights read so far, and in all. May be called from any thread."""

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Frames: TypeAlias = "npt.NDArray[np.uint8]"
"""A decoded clip, or some frames of it: [time, height, width, 3], RGB."""

Frame: TypeAlias = "npt.NDArray[np.uint8]"
"""One of them: [height, width, 3]."""


class EngineError(ValueError):
    """The request itself is at fault; trying again with the same input cannot help."""


class Unrenderable(EngineError):
    """This model, or this gang, cannot render that spec."""


class RanksLost(Unrenderable):
    """The task is at fault, and the other ranks wait for this one inside a collective: the gang must be formed anew."""


class CheckpointRefused(EngineError):
    """The checkpoint is damaged, or was made for another spec."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a gang's ranks share one render; neighbours in rank order share a sequence (Ulysses)."""

    ulysses: int = 1
    cfg: int = 1
    fsdp: bool = False

    def __post_init__(self) -> None:
        if self.ulysses < 1:
            raise ValueError(f"ulysses must be at least 1, not {self.ulysses}")
        if self.cfg not in (1, 2):
            raise ValueError(f"cfg must be 1 or 2 (with and without the prompt), not {self.cfg}")

    @property
    def ranks(self) -> int:
        return self.ulysses * self.cfg


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What an engine is made with. The same on every rank but for `device`; with several ranks the default process group
    of `torch.distributed` is there already."""

    weights: Path
    parallel: Parallel = Parallel()
    device: str = "cpu"
    """`cpu`, or `cuda:N`."""
    dtype: Dtype = "float32"
    fp8: bool = False
    progress: Progress | None = None
    """To be called while weights are read: users see it, and a slow disk is not taken for a stalled rank."""
    loras: tuple[Lora, ...] = ()
    """Adapters that a spec may name."""
    loras_apart: bool = False
    fp8_attention: bool = False
    """Whether specs will ask for it: what cannot have it says so while it is loaded."""


class Rendering(Protocol):
    """One task's computation on this rank."""

    @property
    def step(self) -> int:
        """Denoise steps done."""
        ...

    @property
    def of(self) -> int:
        """Denoise steps in all."""
        ...

    def advance(self) -> None:
        """Do one denoise step. Collective."""
        ...

    def snapshot(self) -> bytes:
        """A self-contained checkpoint that any gang of the same model can resume, whatever its size. Rank 0."""
        ...

    def preview(self) -> bytes:
        """A small animated WebP of how the clip looks so far. Rank 0."""
        ...

    def decode(self) -> "Iterable[Frame] | None":
        """The clip's frames in order on rank 0, None on the others. Collective.

        An array of all frames will do. A generator may decode while they are taken: what was taken is encoded meanwhile.
        """
        ...


class VideoEngine(Protocol):
    """A resident model on this rank."""

    def begin(self, spec: VideoSpec, image: bytes | None) -> Rendering:
        """Encode the inputs and stand before step 0. Collective; only rank 0's `image` (PNG, JPEG, WebP) is read."""
        ...

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> Rendering:
        """Stand where the checkpoint was taken. Collective; only rank 0's `checkpoint` is read."""
        ...
