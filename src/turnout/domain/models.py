"""A model is an alias that users call: what it needs, what it may take, and what it can make."""

from dataclasses import dataclass
from typing import Literal

from turnout.domain.errors import Misconfigured
from turnout.domain.video import VideoRules

Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Model:
    """`weights` is a directory, or `builtin:NAME` for what ships with the package.

    A gang has `ulysses × cfg` ranks: `ulysses` splits the token sequence, `cfg` (1 or 2) runs the two
    branches of guidance side by side, `fsdp` shards the weights over all ranks.
    """

    name: str
    weights: str
    rules: VideoRules
    ulysses: int = 1
    cfg: int = 1
    fsdp: bool = False
    device: str = "cpu"
    dtype: Dtype = "float32"
    min_replicas: int = 0
    max_replicas: int = 1
    idle_s: float = 300.0

    @property
    def ranks(self) -> int:
        return self.ulysses * self.cfg


def check_model(model: Model) -> None:
    """Refuses a model that no gang could ever serve."""
    if model.ulysses < 1 or model.rules.heads % model.ulysses:
        raise Misconfigured(
            f"model {model.name}: {model.rules.heads} heads cannot be split {model.ulysses} ways"
        )
    if model.cfg not in (1, 2):
        raise Misconfigured(f"model {model.name}: cfg is 1 or 2, not {model.cfg}")
    if not 0 <= model.min_replicas <= model.max_replicas or model.max_replicas < 1:
        raise Misconfigured(
            f"model {model.name}: needs 0 <= min_replicas <= max_replicas and max_replicas >= 1"
        )
