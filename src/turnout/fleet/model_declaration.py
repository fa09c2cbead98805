"""What can be said of a model when it is declared: the same fields in `turnout.yaml`, over HTTP and on the command line.

Each field's metadata is what pydantic's `Field` takes: its bounds and its description. `declared_models` checks a
declaration with it, the command line makes its options from it. This module is imported whenever the command starts, so
it imports nothing heavy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from turnout.fleet.serving import EngineKind
from turnout.fleet.video_model_rules import Runner

VIDEO_FIELDS = frozenset(
    {
        "family",
        "rules",
        "ulysses",
        "cfg",
        "fsdp",
        "device",
        "fp8",
        "video_engine",
        "loras",
        "usual_loras",
        "loras_apart",
        "runner",
    }
)
"""For wan models only."""


def _says(description: str, **bounds: object) -> Mapping[str, object]:
    return {"description": description, **bounds}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeclaration:
    """A model for workers to run. A wan model names its `family`, or its `rules`."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    alias: str = field(metadata=_says("What callers name it.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$"))
    engine: EngineKind = field(default=EngineKind.VLLM, metadata=_says("What runs it."))
    model_name: str = field(
        metadata=_says("A name or a path the engine understands.", min_length=1, max_length=500)
    )
    gpus: int | None = field(
        default=None,
        metadata=_says(
            "GPUs of one replica. Absent: one for each part of vLLM's tensors, one for each rank of a wan model"
            " on cuda, otherwise none.",
            ge=0,
            le=64,
        ),
    )
    gpu_memory_bytes: int = field(default=0, metadata=_says("Taken on each GPU.", ge=0))
    memory_bytes: int = field(default=0, metadata=_says("Main memory of one replica.", ge=0))
    asleep_gpu_memory_bytes: int = field(default=0, metadata=_says("Kept on each GPU while asleep.", ge=0))
    min_replicas: int = field(default=0, metadata=_says("Kept, even when idle.", ge=0, le=1000))
    max_replicas: int = field(default=1, metadata=_says("Never more than these.", ge=1, le=1000))
    idle_s: float = field(
        default=300.0, metadata=_says("A replica leaves after so long without work.", ge=0, le=10**7)
    )
    load_timeout_s: float = field(
        default=600.0, metadata=_says("A start that takes longer has failed.", gt=0, le=86_400)
    )
    concurrency: int = field(
        default=64, metadata=_says("Requests one replica takes at once.", ge=1, le=10_000)
    )
    sleep: bool = field(default=False, metadata=_says("Idle means asleep first (vLLM)."))
    asleep_s: float = field(
        default=3600.0, metadata=_says("A replica leaves after so long asleep.", ge=0, le=10**7)
    )
    max_model_len: int | None = field(
        default=None, metadata=_says("Longest prompt and answer, in tokens.", ge=1, le=10**8)
    )
    gpu_memory_utilization: float | None = field(
        default=None, metadata=_says("Share of each GPU's memory that the engine takes.", gt=0, le=1)
    )
    tensor_parallel_size: int = field(
        default=1, metadata=_says("GPUs its tensors are split over.", ge=1, le=64)
    )
    dtype: str | None = field(default=None, metadata=_says("Number format of the weights.", max_length=50))
    quantization: str | None = field(
        default=None, metadata=_says("How the weights are quantized.", max_length=50)
    )
    arguments: tuple[str, ...] = field(
        default=(), metadata=_says("Further engine arguments, from an allow list.", max_length=50)
    )
    command: tuple[str, ...] = field(
        default=(),
        metadata=_says(
            "The command engine's command line; {port} and {weights} are filled in.", max_length=100
        ),
    )
    family: str | None = field(
        default=None, metadata=_says("What a wan model can make, as wan2.2-ti2v-5b.", max_length=50)
    )
    rules: dict[str, Any] | None = field(
        default=None, metadata=_says("Laid over the rules of a wan model's family.", max_length=50)
    )
    ulysses: int = field(default=1, metadata=_says("Ranks a wan model's tokens are split over.", ge=1, le=64))
    cfg: int = field(default=1, metadata=_says("2 runs a wan model's two branches side by side.", ge=1, le=2))
    fsdp: bool = field(default=False, metadata=_says("A wan model's ranks share its weights."))
    device: str = field(
        default="cpu", metadata=_says("Where a wan model's ranks run: cpu or cuda.", max_length=20)
    )
    fp8: bool = field(
        default=False,
        metadata=_says("A wan model computes in fp8: faster, less exact; GPUs from compute capability 8.9."),
    )
    video_engine: str = field(
        default="wan",
        metadata=_says(
            "What renders: wan, ltx, an installed engine's name, or module:Class.", max_length=300
        ),
    )
    runner: Runner | None = field(
        default=None,
        metadata=_says(
            "Who starts a wan model's gangs: worker, ray, external (others do), job (a Kubernetes job for each task)."
            " Absent: workers, or Ray where the service runs on Ray."
        ),
    )
    loras: dict[str, Any] | None = field(
        default=None, metadata=_says("Adapters that requests may name, by name.", max_length=50)
    )
    usual_loras: tuple[str, ...] = field(
        default=(), metadata=_says("Adapters of requests that name none.", max_length=10)
    )
    loras_apart: bool = field(
        default=False, metadata=_says("Adapters stay apart from the weights: changed at once, slower steps.")
    )
