"""What a video is asked to be, and whether a model can make it. Pure: rules and arithmetic only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from turnout.errors import InvalidRequest

MAX_PROMPT_CHARS = 4_000
MAX_SEED = 2**32 - 1
MAX_STEP_CACHE = 0.2
MIN_GUIDED_SHARE = 0.5  # below it clips showed something else than the prompt


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter that a model declares: its file for both experts, or one for each. A distilled one names the schedule that it
    was made for: `steps`, `guidance`, `shift`, and whether Euler's method takes the steps. `strength` is the default."""

    name: str
    weights: str = ""
    high: str = ""
    low: str = ""
    strength: float = 1.0
    steps: int | None = None
    guidance: tuple[float, float] | None = None
    shift: float | None = None
    euler: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in (self.weights, self.high, self.low) if path)


@dataclass(frozen=True, slots=True)
class LoraUse:
    """An adapter in one video; `distilled` says that it makes do with fewer steps."""

    name: str
    strength: float
    distilled: bool = False


@dataclass(frozen=True, slots=True)
class VideoSpec:
    """Everything that decides the bytes of a video. `guidance` is (low noise, high noise), Wan's own order.

    Some things trade exactness for speed: only the first `guided_share` of the steps have guidance, the model computes
    in `fp8`, attention is in fp8 (`fp8_attention`), a distilled adapter makes do with few steps. `lossy` says what that costs.
    """

    prompt: str
    negative_prompt: str
    width: int
    height: int
    frames: int
    fps: int
    steps: int
    guidance: tuple[float, float]
    shift: float
    seed: int
    image: str | None = None
    guided_share: float = 1.0
    fp8: bool = False
    loras: tuple[LoraUse, ...] = ()
    euler: bool = False
    step_cache: float = 0.0
    fp8_attention: bool = False


class ImageUse(StrEnum):
    """Whether a model draws from words alone, needs a first frame, or takes one when given."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class PromptLanguage(StrEnum):
    ENGLISH = "en"
    CHINESE = "zh"


@dataclass(frozen=True, slots=True)
class VideoRules:
    """What a Wan model can make: the shape of its latents, its limits and its defaults.

    `spatial` and `temporal` are the VAE's compression, `patch` is how many latent pixels a token spans
    on each side; `heads` bounds the degree of sequence parallelism, and with `head_dim` says how wide the transformer is: long
    clips take the longer for it. `prompt_language` is what prompts that are rewritten come out in; None: as they went in.
    """

    heads: int
    spatial: int = 8
    temporal: int = 4
    patch: int = 2
    image: ImageUse = ImageUse.NONE
    sizes: tuple[str, ...] = ()
    max_pixels: int = 1280 * 720
    max_frames: int = 121
    max_steps: int = 100
    default_size: str = "832x480"
    default_frames: int = 81
    fps: int = 16
    steps: int = 40
    guidance: tuple[float, float] = (3.0, 4.0)
    shift: float = 12.0
    negative_prompt: str = ""
    guided_share: float = 1.0
    step_cache: float = 0.0
    head_dim: int = 128
    prompt_language: PromptLanguage | None = None

    @property
    def multiple(self) -> int:
        return self.spatial * self.patch


@dataclass(frozen=True, slots=True)
class RequestedVideo:
    """What a caller asked for; None stands for the model's default. `size` is "WxH"."""

    prompt: str
    negative_prompt: str | None = None
    size: str | None = None
    seconds: float | None = None
    frames: int | None = None
    fps: int | None = None
    steps: int | None = None
    guidance: Sequence[float] | None = None
    shift: float | None = None
    seed: int | None = None
    image: str | None = None
    guided_share: float | None = None
    loras: Sequence[str] | None = None
    """Names, or `name:strength`."""
    step_cache: float | None = None
    fp8_attention: bool | None = None


def settle(
    wish: RequestedVideo,
    rules: VideoRules,
    *,
    ulysses: int,
    seed: int,
    fp8: bool = False,
    fp8_attention: bool = False,
    loras: Sequence[Lora] = (),
    usual_loras: Sequence[str] = (),
) -> VideoSpec:
    """The spec that `wish` asks of a model with `rules`; raises InvalidRequest naming the field at fault.

    `seed` is used when the wish has none. `ulysses` is the degree by which a gang splits each token sequence,
    `fp8` is how it computes, `fp8_attention` how unless the wish says otherwise. `loras` are those that may be named, `usual_loras` the names when the wish has none.
    """
    chosen, used = _loras(usual_loras if wish.loras is None else wish.loras, loras)
    rules = _scheduled(rules, chosen)
    if not wish.prompt.strip():
        raise InvalidRequest("prompt must not be empty.", "prompt", "invalid_value")
    if len(wish.prompt) > MAX_PROMPT_CHARS:
        raise InvalidRequest(f"prompt is over {MAX_PROMPT_CHARS} characters.", "prompt", "string_too_long")
    negative = rules.negative_prompt if wish.negative_prompt is None else wish.negative_prompt
    if len(negative) > MAX_PROMPT_CHARS:
        raise InvalidRequest(
            f"negative_prompt is over {MAX_PROMPT_CHARS} characters.", "negative_prompt", "string_too_long"
        )
    width, height = _size(wish.size or rules.default_size, rules)
    fps = _whole("fps", wish.fps, rules.fps, 1, 60)
    frames = _frames(wish, rules, fps)
    steps = _whole("steps", wish.steps, rules.steps, 1, rules.max_steps)
    _check_split(width, height, frames, rules, ulysses)
    _check_image(wish.image, rules)
    return VideoSpec(
        prompt=wish.prompt,
        negative_prompt=negative,
        width=width,
        height=height,
        frames=frames,
        fps=fps,
        steps=steps,
        guidance=_guidance(wish.guidance, rules),
        shift=_real("shift", wish.shift, rules.shift, 0.1, 100.0),
        seed=_whole("seed", wish.seed, seed, 0, MAX_SEED),
        image=wish.image,
        guided_share=_real("guided_share", wish.guided_share, rules.guided_share, MIN_GUIDED_SHARE, 1.0),
        fp8=fp8,
        loras=used,
        euler=any(lora.euler for lora in chosen),
        step_cache=_real("step_cache", wish.step_cache, rules.step_cache, 0.0, MAX_STEP_CACHE),
        fp8_attention=fp8_attention if wish.fp8_attention is None else wish.fp8_attention,
    )


def lossy(spec: VideoSpec) -> dict[str, str]:
    """What the clip gives up for speed, and the measured error of each; docs/benchmarks-wan.md has the measurements."""
    found: dict[str, str] = {}
    if spec.fp8:
        found["fp8"] = "2.3 % off fp32 after 4 blocks, where bf16 is 0.64 % off"
    if spec.fp8_attention:
        found["fp8_attention"] = (
            "attention 2.4 % off fp32, where bf16 is 0.2 % off; 36 dB or more from the exact clip (on a tiny model)"
        )
    if 0.75 <= spec.guided_share < 1:
        found["guided_share"] = "36 dB from the clip that is guided to its end (at 0.75, on a tiny model)"
    elif spec.guided_share < 0.75:
        found["guided_share"] = "one clip in 24 showed another shape (at 0.5, on a tiny model)"
    if spec.step_cache:
        found["step_cache"] = _cache_error(spec.step_cache)
    if distilled := [use.name for use in spec.loras if use.distilled]:
        found["loras"] = (
            f"{', '.join(distilled)}: {spec.steps} steps, another clip than all steps make; not measured"
        )
    return found


def _cache_error(threshold: float) -> str:
    """The lowest of six prompts of a tiny model with 20 and with 40 steps, in bf16 on a GPU."""
    least = next(db for limit, db in ((0.05, 50), (0.1, 42), (MAX_STEP_CACHE, 33)) if threshold <= limit)
    return f"{least} dB or more from the clip with every step computed (on a tiny model)"


def _loras(names: Sequence[str], declared: Sequence[Lora]) -> tuple[list[Lora], tuple[LoraUse, ...]]:
    """The adapters that are named, and how each is used."""
    known = {lora.name: lora for lora in declared}
    chosen: list[Lora] = []
    used: list[LoraUse] = []
    for word in names:
        name, _, strength = word.partition(":")
        if name not in known or known[name] in chosen:
            allowed = f"allowed: {', '.join(known)}" if known else "this model has none"
            raise InvalidRequest(
                f"{word[:100]!r} is no adapter, or named twice; {allowed}.", "loras", "invalid_value"
            )
        lora = known[name]
        try:
            value = float(strength) if strength else lora.strength
        except ValueError:
            value = float("nan")
        if not -4 <= value <= 4:  # also refuses NaN
            raise InvalidRequest("an adapter's strength is from -4 to 4.", "loras", "invalid_value")
        chosen.append(lora)
        used.append(LoraUse(name, value, lora.steps is not None))
    return chosen, tuple(used)


def _scheduled(rules: VideoRules, loras: Sequence[Lora]) -> VideoRules:
    """With the defaults of a distilled adapter's schedule; the last one that has any decides."""
    for lora in loras:
        changed = {name: getattr(lora, name) for name in ("steps", "guidance", "shift")}
        rules = replace(rules, **{name: value for name, value in changed.items() if value is not None})
    return rules


def tokens(width: int, height: int, frames: int, rules: VideoRules) -> int:
    """How many tokens the transformer sees: latent frames × rows × columns of patches."""
    latent_frames = (frames - 1) // rules.temporal + 1
    return latent_frames * (height // rules.multiple) * (width // rules.multiple)


def seconds_of(spec: VideoSpec) -> str:
    """The clip's length as the videos dialect writes it: frames after the first, over the frame rate."""
    seconds = (spec.frames - 1) / spec.fps
    return str(int(seconds)) if seconds == int(seconds) else f"{seconds:.2f}".rstrip("0")


def _size(size: str, rules: VideoRules) -> tuple[int, int]:
    width_text, _, height_text = size.partition("x")
    if not (
        width_text.isascii() and width_text.isdigit() and height_text.isascii() and height_text.isdigit()
    ):
        raise InvalidRequest(f"size must look like {rules.default_size}.", "size", "invalid_value")
    if len(width_text) > 5 or len(height_text) > 5:
        raise InvalidRequest(f"size {size[:20]} is too large.", "size", "invalid_value")
    width, height = int(width_text), int(height_text)
    if rules.sizes and f"{width}x{height}" not in rules.sizes:
        raise InvalidRequest(
            f"size {width}x{height} is not offered; allowed: {', '.join(rules.sizes)}.",
            "size",
            "invalid_value",
        )
    if width % rules.multiple or height % rules.multiple or not width or not height:
        raise InvalidRequest(
            f"width and height must be multiples of {rules.multiple}; got {width}x{height}.",
            "size",
            "invalid_value",
        )
    if width * height > rules.max_pixels:
        raise InvalidRequest(
            f"size {width}x{height} is over this model's {rules.max_pixels} pixels.", "size", "invalid_value"
        )
    return width, height


def _frames(wish: RequestedVideo, rules: VideoRules, fps: int) -> int:
    if wish.frames is not None and wish.seconds is not None:
        raise InvalidRequest("give seconds or frames, not both.", "frames", "invalid_value")
    if wish.seconds is not None:
        longest = (rules.max_frames - 1) / fps
        if not 0 < wish.seconds <= longest:  # also refuses NaN
            raise InvalidRequest(
                f"seconds must be above 0 and at most {longest:g} at {fps} fps.", "seconds", "invalid_value"
            )
        return max(1, round(wish.seconds * fps / rules.temporal)) * rules.temporal + 1
    frames = rules.default_frames if wish.frames is None else wish.frames
    if not 1 <= frames <= rules.max_frames or (frames - 1) % rules.temporal:
        raise InvalidRequest(
            f"frames must be {rules.temporal}n+1 and at most {rules.max_frames}; got {frames}.",
            "frames",
            "invalid_value",
        )
    return frames


def _check_split(width: int, height: int, frames: int, rules: VideoRules, ulysses: int) -> None:
    count = tokens(width, height, frames, rules)
    if rules.heads % ulysses or count % ulysses:
        raise InvalidRequest(
            f"{width}x{height} with {frames} frames gives {count} tokens, which this model's gang cannot split "
            f"{ulysses} ways; choose another size or length.",
            "size",
            "invalid_value",
        )


def _check_image(image: str | None, rules: VideoRules) -> None:
    if image is None and rules.image is ImageUse.REQUIRED:
        raise InvalidRequest(
            "this model animates a given image: input_reference is required.", "input_reference", "missing"
        )
    if image is not None and rules.image is ImageUse.NONE:
        raise InvalidRequest("this model draws from words alone.", "input_reference", "unsupported")


def _guidance(value: Sequence[float] | None, rules: VideoRules) -> tuple[float, float]:
    if value is None:
        return rules.guidance
    if len(value) not in (1, 2) or not all(0 <= g <= 50 for g in value):
        raise InvalidRequest(
            "guidance must be one number or two (low noise, high noise), each from 0 to 50.",
            "guidance",
            "invalid_value",
        )
    return float(value[0]), float(value[-1])


def _whole(name: str, value: int | None, default: int, low: int, high: int) -> int:
    chosen = default if value is None else value
    if not low <= chosen <= high:
        raise InvalidRequest(f"{name} must be from {low} to {high}; got {chosen}.", name, "invalid_value")
    return chosen


def _real(name: str, value: float | None, default: float, low: float, high: float) -> float:
    chosen = default if value is None else value
    if not low <= chosen <= high:  # also refuses NaN
        raise InvalidRequest(
            f"{name} must be from {low:g} to {high:g}; got {chosen:g}.", name, "invalid_value"
        )
    return float(chosen)
