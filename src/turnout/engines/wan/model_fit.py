"""Whether a machine can hold a Wan model: which weights a rank keeps, and what is left for a clip. Reads the files' headers
alone, and needs no torch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from turnout.engines.base import Parallel
from turnout.engines.fit_verdict import FitVerdict, part
from turnout.engines.wan.memory_rules import TILE_ABOVE_PIXELS, MemoryPlan
from turnout.engines.wan.scaling_model import EXACT_STEPS, Workload, finish_s
from turnout.engines.wan.shape import WanShape, read_config, read_shape
from turnout.engines.wan.weight_files import StoredTensor, stored_tensors
from turnout.fleet.family_rules import FAMILIES
from turnout.tasks.pace_rules import guided_forwards, guided_steps
from turnout.tasks.video_rules import ImageUse, RequestedVideo, VideoRules, VideoSpec, settle

GIB = 2**30
# The context of CUDA and its libraries, and what the allocator cannot use.
_AROUND_BYTES = 2 * GIB
_NUMBER_BYTES = {"float32": 4, "bfloat16": 2}
_ALONE = Parallel()
_IMAGES = {"t2v": ImageUse.NONE, "i2v": ImageUse.REQUIRED, "ti2v": ImageUse.OPTIONAL}


@dataclass(frozen=True, slots=True)
class Mode:
    """How a gang computes."""

    parallel: Parallel = _ALONE
    dtype: str = "bfloat16"
    fp8: bool = False
    fp8_attention: bool = False

    def __str__(self) -> str:
        gpus = self.parallel.ranks
        layout = f"cfg {self.parallel.cfg} × ulysses {self.parallel.ulysses}" if gpus > 1 else ""
        attention = "fp8 attention" if self.fp8_attention else ""
        parts = ("fp8" if self.fp8 else self.dtype, attention, layout, "fsdp" if self.parallel.fsdp else "")
        return f"{gpus} GPU{'s' if gpus > 1 else ''}: {', '.join(part for part in parts if part)}"


@dataclass(frozen=True, slots=True)
class Clip:
    width: int
    height: int
    frames: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}, {self.frames} frames"


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model as its files describe it; counts of numbers, not of bytes."""

    shape: WanShape
    width: int
    experts: int
    in_blocks: int
    """Of the experts' numbers, those in the large products of blocks: fp8 halves them."""
    for_leader: int
    stored_bytes: int

    def weight_bytes(self, mode: Mode, idle_away: bool = False) -> int:
        """What rank 0 keeps; the others have no text encoder. With `idle_away` the idle expert lies on the host."""
        number = _NUMBER_BYTES[mode.dtype]
        experts = self.experts * number - (self.in_blocks * (number - 1) if mode.fp8 else 0)
        shares = mode.parallel.ranks if mode.parallel.fsdp else 1
        experts = experts // self.shape.experts if idle_away else experts // shares
        return experts + self.for_leader * number

    def needed_bytes(self, mode: Mode, clip: Clip, idle_away: bool = False) -> int:
        """On rank 0's device, for such a clip."""
        plan = MemoryPlan(
            self.shape,
            self.width,
            _NUMBER_BYTES[mode.dtype],
            mode.parallel.ulysses,
            mode.parallel.ranks,
            TILE_ABOVE_PIXELS,
            mode.fp8_attention,
        )
        for_clip = plan.needed_bytes(clip.width, clip.height, clip.frames)
        return self.weight_bytes(mode, idle_away) + for_clip + _AROUND_BYTES

    def step_s(self, mode: Mode, clip: Clip) -> float:
        """Of a step with guidance on H200s, those of several linked by NVLink; on paper. With fp8 attention, of a step that has it."""
        return self.forward_s(mode, clip) * 2 / mode.parallel.cfg

    def clip_s(self, mode: Mode, clip: Clip, spec: VideoSpec) -> float:
        """Of a clip with the steps of `spec` on H200s whose model is loaded; on paper."""
        guided = guided_steps(spec)
        forwards = guided * guided_forwards(spec, mode.parallel.cfg) + spec.steps - guided
        exact = self.forward_s(replace(mode, fp8_attention=False), clip) if mode.fp8_attention else 0.0
        forward_s = self.forward_s(mode, clip)
        forward_s = EXACT_STEPS * exact + (1 - EXACT_STEPS) * forward_s if mode.fp8_attention else forward_s
        pixels = clip.width * clip.height * clip.frames
        return forwards * forward_s + finish_s(pixels, self.shape.scale_spatial)

    def forward_s(self, mode: Mode, clip: Clip) -> float:
        layer = self.in_blocks // (self.shape.experts * self.shape.layers)
        work = Workload(
            self.shape.tokens(clip.width, clip.height, clip.frames),
            self.width,
            self.shape.layers,
            layer - 2 * self.width**2,  # without the text's keys and values, which are made once a clip
        )
        return work.forward_s(mode.parallel.ulysses, mode.fp8, mode.fp8_attention)


def read_model_files(weights: Path) -> StoredModel:
    """Raises ValueError when a part is missing, cut short, or no Wan model."""
    shape = read_shape(weights)
    config = read_config(weights / "transformer" / "config.json")
    experts = in_blocks = leader = stored = 0
    for folder in ("transformer", "transformer_2")[: shape.experts]:
        for name, tensor in _tensors(weights / folder):
            numbers, stored = prod(tensor.shape), stored + tensor.length
            experts += numbers
            in_blocks += numbers if name.startswith("blocks.") and len(tensor.shape) == 2 else 0
    for folder in ("text_encoder", "vae"):
        for _, tensor in _tensors(weights / folder):
            leader, stored = leader + prod(tensor.shape), stored + tensor.length
    width = int(config["num_attention_heads"]) * int(config["attention_head_dim"])
    return StoredModel(shape, width, experts, in_blocks, leader, stored)


def _tensors(folder: Path) -> Iterable[tuple[str, StoredTensor]]:
    try:
        return stored_tensors(folder).items()
    except OSError as err:
        raise ValueError(f"cannot read {folder}: {err}") from err


def family_of(shape: WanShape) -> VideoRules:
    """The rules of the family that such a model belongs to."""
    seen = (shape.heads, shape.scale_spatial, _IMAGES[shape.kind])
    known = (rules for rules in FAMILIES.values() if (rules.heads, rules.spatial, rules.image) == seen)
    return next(known, VideoRules(shape.heads))


def offered_clips(shape: WanShape, rules: VideoRules | None = None) -> list[Clip]:
    """The sizes of a model at its usual length. One that takes any size is judged by those of its family."""
    family = family_of(shape)
    rules = rules or family
    sizes = [tuple(map(int, size.split("x"))) for size in rules.sizes or (*family.sizes, rules.default_size)]
    # One size of each area: a clip needs as much lying as standing.
    areas = {width * height: (width, height) for width, height in reversed(sizes)}
    return [Clip(*areas[area], rules.default_frames) for area in sorted(areas) if area <= rules.max_pixels]


def usual_spec(rules: VideoRules) -> VideoSpec:
    """What a request gets that says nothing."""
    image = "image" if rules.image is ImageUse.REQUIRED else None
    return settle(RequestedVideo("any", image=image), rules, ulysses=1, seed=0)


def usual_modes(shape: WanShape) -> Iterator[Mode]:
    """One GPU exactly, in fp8, and with attention in fp8, too; then gangs that the heads allow."""
    yield Mode()
    yield Mode(fp8=True)
    yield Mode(fp8=True, fp8_attention=True)
    for gpus in (2, 4, 8):
        if shape.heads % (gpus // 2) == 0:
            yield Mode(Parallel(ulysses=gpus // 2, cfg=2))
            yield Mode(Parallel(ulysses=gpus // 2, cfg=2, fsdp=True))


def size_of(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"


def verdict(
    model: StoredModel,
    mode: Mode,
    clips: Sequence[Clip],
    gpu_bytes: Sequence[int],
    spec: VideoSpec | None = None,
) -> FitVerdict:
    """Whether these GPUs hold the model so, and all sizes that fit; with the seconds of a clip by `spec`."""
    gpus = sorted(gpu_bytes, reverse=True)[: mode.parallel.ranks]
    weights = part("weights", size=size_of(model.weight_bytes(mode)))
    if len(gpus) < mode.parallel.ranks:
        return FitVerdict(False, (part("gpus_missing", needed=mode.parallel.ranks, here=len(gpus)),))
    least, left, said = min(gpus), list(clips), [weights]
    for away in (False, True) if model.shape.experts > 1 and not mode.parallel.fsdp else (False,):
        fitting = [clip for clip in left if model.needed_bytes(mode, clip, away) <= least]
        left = [clip for clip in left if clip not in fitting]
        if fitting:
            listed = ", ".join(_clip_words(model, mode, clip, away, spec) for clip in fitting)
            code = "sizes_idle_away" if away else "sizes"
            said.append(part(code, frames=fitting[0].frames, sizes=listed))
    if len(left) == len(clips):
        needed = f"{min(model.needed_bytes(mode, clip) for clip in clips) / GIB:.0f} GiB"
        return FitVerdict(
            False, (weights, part("gpu_too_small", needed=needed, has=f"{least / GIB:.0f} GiB"))
        )
    if left:
        said.append(part("sizes_too_large", sizes=", ".join(f"{clip.width}x{clip.height}" for clip in left)))
    return FitVerdict(True, tuple(said))


def _clip_words(model: StoredModel, mode: Mode, clip: Clip, away: bool, spec: VideoSpec | None) -> str:
    seconds = "" if spec is None else f", {model.clip_s(mode, clip, spec):.0f} s"
    return f"{clip.width}x{clip.height} ({model.needed_bytes(mode, clip, away) / GIB:.0f} GiB{seconds})"
