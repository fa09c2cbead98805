"""A model: what is declared of it, stored, ordered from workers and given to gangs. Pure.

There is one shape. Each field says how it is declared (bounds and a description), and `model_declaration` reads it from
a file, HTTP or the command line. Outside of Python the fields of `scaling`, `server` and `version` stand beside the others: that
is how 0.2.0 stored models and how its workers read orders. This module is imported whenever the command starts, so it imports nothing heavy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, cast

from turnout.errors import Misconfigured
from turnout.tasks.video_rules import Lora, VideoRules

Dtype = Literal["float32", "bfloat16"]
WAN_ENGINE = "wan"


def declared(description: str, **bounds: object) -> Mapping[str, Mapping[str, object]]:
    """What a declaration of the field is held to, in the words of pydantic's `Field`. Records of other versions are not."""
    return {"declared": {"description": description, **bounds}}


class EngineKind(StrEnum):
    """`VIDEO` is rendered by gangs that take tasks from a queue, whatever family it is; its stored name is older than the
    second family. `COMMAND` is a command line of one's own for any server that speaks OpenAI's dialect."""

    VIDEO = "wan"
    VLLM = "vllm"
    LLAMACPP = "llamacpp"
    COMMAND = "command"

    @classmethod
    def _missing_(cls, value: object) -> "EngineKind | None":
        return cls.VIDEO if value == "video" else None


ENGINE_SERVERS = frozenset(EngineKind) - {EngineKind.VIDEO}
BUILTIN = "builtin:"
"""What the weights of models that come along begin with. Their names, by the engine that knows them:"""
BUILTIN_MODELS = {
    EngineKind.VIDEO: ("wan-tiny-t2v", "wan-tiny-ti2v", "wan-tiny-i2v"),
    EngineKind.LLAMACPP: ("smollm2",),
}
"""Those that answer requests over HTTP."""


class Runner(StrEnum):
    """Who starts a model's gangs. The manager places those of workers alone: of the others it neither places nor refuses
    any. `EXTERNAL` are ranks that somebody else starts (torchrun, a LeaderWorkerSet); `JOB` is one Kubernetes job for each
    task."""

    WORKER = "worker"
    RAY = "ray"
    EXTERNAL = "external"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Needs:
    """What one replica takes from a machine. `gpu_memory_bytes` is taken on each of its GPUs (0: the share that
    the model's `gpu_memory_utilization` says, or a whole GPU). `memory_bytes` is counted awake and asleep, so a model that
    sleeps states what it takes asleep."""

    gpus: int = 0
    gpu_memory_bytes: int = field(default=0, metadata=declared("Taken on each GPU.", ge=0))
    memory_bytes: int = field(default=0, metadata=declared("Main memory of one replica.", ge=0))
    asleep_gpu_memory_bytes: int = field(default=0, metadata=declared("Kept on each GPU while asleep.", ge=0))


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many replicas there are, and when they leave."""

    min_replicas: int = field(default=0, metadata=declared("Kept, even when idle.", ge=0, le=1000))
    max_replicas: int = field(default=1, metadata=declared("Never more than these.", ge=1, le=1000))
    idle_s: float = field(
        default=300.0, metadata=declared("A replica leaves after so long without work.", ge=0, le=10**7)
    )
    load_timeout_s: float = field(
        default=600.0, metadata=declared("A start that takes longer has failed.", gt=0, le=86_400)
    )
    start_s: float | None = field(
        default=None,
        metadata=declared("How long a start should take, for alerts; learnt if not given.", gt=0, le=86_400),
    )
    sleep: bool = field(default=False, metadata=declared("Idle means asleep first (vLLM)."))
    asleep_s: float = field(
        default=3600.0, metadata=declared("A replica leaves after so long asleep.", ge=0, le=10**7)
    )


@dataclass(frozen=True, slots=True)
class Version:
    """Which model's name it answers for as well, and to how much of what is asked of it (`version_rules`)."""

    version_of: str | None = field(
        default=None, metadata=declared("The model whose name it answers for as well.", max_length=100)
    )
    share: float = field(
        default=0.0, metadata=declared("Its part of what is asked of that name, 0 to 1.", ge=0, le=1)
    )


@dataclass(frozen=True, slots=True)
class ServerPart:
    """How an engine server is started. `arguments` have passed the engine's allow list."""

    max_model_len: int | None = field(
        default=None, metadata=declared("Longest prompt and answer, in tokens.", ge=1, le=10**8)
    )
    gpu_memory_utilization: float | None = field(
        default=None, metadata=declared("Share of each GPU's memory that the engine takes.", gt=0, le=1)
    )
    tensor_parallel_size: int = field(
        default=1, metadata=declared("GPUs its tensors are split over.", ge=1, le=64)
    )
    quantization: str | None = field(
        default=None, metadata=declared("How the weights are quantized.", max_length=50)
    )
    arguments: tuple[str, ...] = field(
        default=(), metadata=declared("Further engine arguments, from an allow list.", max_length=50)
    )
    vision: bool | None = field(
        default=None,
        metadata=declared("Whether a chat model sees pictures; absent: what its engine and name tell."),
    )
    command: tuple[str, ...] = field(
        default=(),
        metadata=declared(
            "The command engine's command line; {port} and {weights} are filled in.", max_length=100
        ),
    )


@dataclass(frozen=True, slots=True)
class VideoPart:
    """A gang has `ulysses × cfg` ranks: `ulysses` splits the token sequence, `cfg` runs the two branches of guidance side
    by side. `runner` None: workers, or Ray where the service runs on Ray."""

    rules: VideoRules
    ulysses: int = field(
        default=1, metadata=declared("Ranks a video model's tokens are split over.", ge=1, le=64)
    )
    cfg: int = field(
        default=1, metadata=declared("2 runs a video model's two branches side by side.", ge=1, le=2)
    )
    fsdp: bool = field(default=False, metadata=declared("A video model's ranks share its weights."))
    device: str = field(
        default="cpu", metadata=declared("Where a video model's ranks run: cpu or cuda.", max_length=20)
    )
    fp8: bool = field(
        default=False,
        metadata=declared(
            "A video model computes in fp8: faster, less exact; GPUs from compute capability 8.9."
        ),
    )
    fp8_attention: bool = field(
        default=False,
        metadata=declared(
            "Clips that do not say otherwise have attention in fp8: faster, less exact; Hopper GPUs with FlashAttention 3."
        ),
    )
    video_engine: str = field(
        default=WAN_ENGINE,
        metadata=declared(
            "What renders: wan, ltx, an installed engine's name, or module:Class.", max_length=300
        ),
    )
    runner: Runner | None = field(
        default=None,
        metadata=declared(
            "Who starts a video model's gangs: worker, ray, external (others do), job (a Kubernetes job for each task)."
            " Absent: workers, or Ray where the service runs on Ray."
        ),
    )
    loras: tuple[Lora, ...] = ()
    usual_loras: tuple[str, ...] = field(
        default=(), metadata=declared("Adapters of requests that name none.", max_length=10)
    )
    loras_apart: bool = field(
        default=False,
        metadata=declared("Adapters stay apart from the weights: changed at once, slower steps."),
    )

    @property
    def ranks(self) -> int:
        return self.ulysses * self.cfg

    @property
    def runs_named_code(self) -> bool:
        """Whether the model's declaration itself says which code runs, rather than what was installed."""
        return ":" in self.video_engine

    def run_by(self, default: Runner) -> Runner:
        return self.runner or default


@dataclass(frozen=True, slots=True)
class Model:
    """`weights` is a name or a path that the engine understands, `builtin:NAME` for what ships with a package. Replicas of
    a model with a `video` part are gangs: each takes one task at a time from the model's queue."""

    name: str
    engine: EngineKind
    weights: str
    needs: Needs = Needs()
    scaling: Scaling = Scaling()
    server: ServerPart = ServerPart()
    version: Version = Version()
    concurrency: int = field(
        default=64, metadata=declared("Requests one replica takes at once.", ge=1, le=10_000)
    )
    dtype: str | None = field(default=None, metadata=declared("Number format of the weights.", max_length=50))
    video: VideoPart | None = None

    @property
    def gang(self) -> VideoPart:
        """The video part, for what is only done for video models."""
        if self.video is None:
            raise Misconfigured(f"{self.name} is served by an engine server: it has no gangs")
        return self.video

    @property
    def gang_dtype(self) -> Dtype:
        """What the ranks of its gangs compute in."""
        return cast("Dtype", self.dtype or ("bfloat16" if self.gang.device == "cuda" else "float32"))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        flat = core_schema.wrap_serializer_function_ser_schema(_flat)
        return core_schema.no_info_before_validator_function(_grouped, handler(source), serialization=flat)


_BESIDE = {"scaling": Scaling, "server": ServerPart, "version": Version}


def _flat(model: Model, dump: Callable[[Model], dict[str, Any]]) -> dict[str, Any]:
    fields_of = dump(model)
    beside = [fields_of.pop(group) for group in _BESIDE]
    for group in beside:
        fields_of |= group
    return fields_of


def _grouped(written: object) -> object:
    if not isinstance(written, Mapping):
        return written
    values = dict(cast("Mapping[str, Any]", written))
    for group, shape in _BESIDE.items():
        values[group] = {f.name: values.pop(f.name) for f in fields(shape) if f.name in values}
    return values
