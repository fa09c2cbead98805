"""What can be said of a model when it is declared: the same fields in `turnout.yaml`, over HTTP and on the command line.

They are the fields of the model itself (`model_rules`), in one flat list. This module is imported whenever the command
starts, so it imports nothing heavy.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from turnout.fleet.model_rules import (
    EngineKind,
    Model,
    Needs,
    Scaling,
    ServerPart,
    Version,
    VideoPart,
    declared,
)


@dataclass(frozen=True, slots=True)
class _OtherWords:
    """What a declaration says in other words than the model keeps it."""

    alias: str = field(
        metadata=declared("What callers name it.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")
    )
    model_name: str = field(
        metadata=declared("A name or a path the engine understands.", min_length=1, max_length=500)
    )
    engine: EngineKind = field(default=EngineKind.VLLM, metadata=declared("What runs it."))
    gpus: int | None = field(
        default=None,
        metadata=declared(
            "GPUs of one replica. Absent: one for each part of vLLM's tensors, one for each rank of a video model"
            " on cuda, otherwise none.",
            ge=0,
            le=64,
        ),
    )
    family: str | None = field(
        default=None, metadata=declared("What a video model can make, as wan2.2-ti2v-5b.", max_length=50)
    )
    rules: dict[str, Any] | None = field(
        default=None, metadata=declared("Laid over the rules of a video model's family.", max_length=50)
    )
    loras: dict[str, Any] | None = field(
        default=None, metadata=declared("Adapters that requests may name, by name.", max_length=50)
    )


def _declared(shape: Any) -> dict[str, Field[Any]]:
    return {f.name: f for f in fields(shape) if "declared" in f.metadata}


_OTHER = _declared(_OtherWords)
DECLARED: Mapping[str, Field[Any]] = {
    name: _OTHER.get(name, f)
    for shape in (_OtherWords, Needs, Scaling, ServerPart, Version, Model, VideoPart)
    for name, f in _declared(shape).items()
}
VIDEO_FIELDS = frozenset({"family", *(f.name for f in fields(VideoPart))})
"""For video models only."""
