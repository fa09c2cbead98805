"""What this machine runs for its gateway, whatever it is ordered. A gateway that was taken over can order nothing else.

An order names an engine, weights, arguments and GPUs. The arguments and paths that an engine takes are bounded by
`engines.servers.engine_servers`; its address, port, environment and program are the worker's own.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from turnout.errors import InvalidRequest
from turnout.fleet.model_rules import BUILTIN, EngineKind, Model

ORDER_REFUSED = "order_refused"
"""The code of an error that says nothing of the model: another machine may take it."""
_REPLICA = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # files are named after it
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class OrderRules:
    """`commands` are the command lines that may be run, word for word (None: any), `video_engines` the import paths of
    video engines (any, where any command is). `weights` may be loaded, and what lies in one of `weights_dirs` (None:
    anywhere). Names of the Hugging Face hub are no paths."""

    engines: frozenset[EngineKind]
    commands: frozenset[tuple[str, ...]] | None = frozenset()
    video_engines: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()
    weights_dirs: tuple[Path, ...] | None = ()

    def check(self, replica: str, model: Model, gpus: Collection[int], have: Collection[int]) -> None:
        """Raises InvalidRequest (ORDER_REFUSED) for an order that this machine does not follow; `have` are its GPUs."""
        if _REPLICA.fullmatch(replica) is None:
            raise _refusal("the replica's name is not one")
        if model.engine not in self.engines:
            raise _refusal(f"{model.engine} engines are not allowed here (worker_engines)")
        if model.server.command and self.commands is not None and model.server.command not in self.commands:
            raise _refusal(
                f"the command {model.server.command[0][:80]!r} is not allowed here (worker_commands)"
            )
        video = model.video
        named = video.video_engine if video and video.runs_named_code else None
        if named and self.commands is not None and named not in self.video_engines:
            raise _refusal(f"the video engine {named[:80]!r} is declared in no file here")
        if not set(gpus) <= set(have):
            raise _refusal("it has not all of the GPUs that the order names")
        adapters = [path for lora in video.loras for path in lora.paths] if video else []
        for weights in (model.weights, *adapters):
            if self._may_load(weights):
                continue
            raise _refusal(
                f"the weights {weights[:80]!r} lie in no folder that is allowed here (worker_weights_dirs)"
            )

    def _may_load(self, weights: str) -> bool:
        if not weights or weights in self.weights or weights.startswith(BUILTIN):
            return True
        if self.weights_dirs is None:
            return True
        path = Path(weights)
        if _HUB_NAME.fullmatch(weights) and not path.exists():
            return True
        real = path.resolve()  # a link inside an allowed folder may lead out of it
        return any(real.is_relative_to(folder.resolve()) for folder in self.weights_dirs)


def _refusal(reason: str) -> InvalidRequest:
    return InvalidRequest(f"this worker refuses the order: {reason}", code=ORDER_REFUSED)
