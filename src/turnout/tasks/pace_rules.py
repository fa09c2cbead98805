"""How fast a model makes videos: learned by kind from those that it made, and for a kind that it never made scaled by what a
forward costs on paper. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log

from turnout.engines.wan.scaling_model import relative_cost
from turnout.fleet.model_rules import VideoPart
from turnout.tasks.stage_rules import STEP, StageClock, StageTime
from turnout.tasks.task_rules import Claimed, Event, Stage
from turnout.tasks.video_rules import VideoRules, VideoSpec, tokens

_NEWEST = 0.3  # the weight of the newest video in a running mean
_MAX_KINDS = 48  # of one model; those that were made last
_LOADED_S = 0.3  # a gang that loads no longer than this had its model loaded
_WARM_STEPS = 2  # steps after the first one, before that one may be called slow
# The share of its steps that a clip with a step cache computes, by threshold: between those of 20 and 40 steps on a tiny model.
_CACHE_SHARES = ((0.0, 1.0), (0.05, 0.87), (0.1, 0.66), (1.0, 0.52))


@dataclass(frozen=True, slots=True)
class VideoKind:
    """Videos of one kind take the same time for a forward, for their beginning and for their end."""

    width: int
    height: int
    frames: int
    image: bool = False
    fp8: bool = False
    fp8_attention: bool = False
    step_cache: float = 0.0
    loras: tuple[str, ...] = ()
    ulysses: int = 1

    @property
    def pixels(self) -> int:
        return self.width * self.height * self.frames

    @property
    def options(self) -> tuple[object, ...]:
        """All but the size and length."""
        return (
            self.image,
            self.fp8,
            self.fp8_attention,
            self.step_cache,
            self.loras,
            self.ulysses,
        )


@dataclass(frozen=True, slots=True)
class KindPace:
    """`encode_s` is before the first step, `finish_s` after the last one: decoding, the mp4, the upload."""

    kind: VideoKind
    forward_s: float
    encode_s: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class PaceBook:
    """All that is known of one model, the kind that was made last first. `load_s` is how long a task waits for a gang that
    loads its model, `warm_s` how much longer its first step takes then."""

    kinds: tuple[KindPace, ...] = ()
    load_s: float | None = None
    warm_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One video. `load_s` is None where the model was loaded already."""

    forward_s: float
    encode_s: float
    finish_s: float
    load_s: float | None = None
    warm_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ExpectedTimes:
    """What one video should take. A step without guidance takes `step_s`. `seen`: one of its kind was made before."""

    encode_s: float
    guided_step_s: float
    step_s: float
    finish_s: float
    seen: bool = True

    def steps_s(self, spec: VideoSpec, begin: int = 0) -> float:
        """All steps from `begin` on."""
        guided = max(0, guided_steps(spec) - begin)
        return guided * self.guided_step_s + (max(0, spec.steps - begin) - guided) * self.step_s

    def render_s(self, spec: VideoSpec) -> float:
        """By a gang whose model is loaded."""
        return self.encode_s + self.steps_s(spec) + self.finish_s


def kind_of(spec: VideoSpec, video: VideoPart) -> VideoKind:
    return VideoKind(
        spec.width,
        spec.height,
        spec.frames,
        spec.image is not None,
        spec.fp8,
        spec.fp8_attention,
        spec.step_cache,
        tuple(use.name for use in spec.loras),
        video.ulysses,
    )


def guided_steps(spec: VideoSpec) -> int:
    """The first so many steps have guidance."""
    return sum(step < spec.guided_share * spec.steps for step in range(spec.steps))


def guided_forwards(spec: VideoSpec, cfg: int) -> float:
    """How many forwards a step with guidance takes, one after the other. Guidance of at most 1 is none; which expert does how
    many of the steps is not known here, so each is taken to do half."""
    low, high = spec.guidance
    return max(1.0, (1 + (low > 1) / 2 + (high > 1) / 2) / cfg)


def measured(events: Iterable[Event], spec: VideoSpec, video: VideoPart) -> Measured | None:
    """How long the stages of a finished video's last attempt took; None where its reports do not tell."""
    clock, times = StageClock(), list[StageTime]()
    for event in events:
        time = clock.see(event)
        if isinstance(event, Claimed):
            times.clear()
        elif time is not None and time.whole:
            times.append(time)
    steps = [time for time in times if time.stage == STEP]
    finish_s = sum(time.seconds for time in times if time.stage in (Stage.DECODING, Stage.UPLOADING))
    if not steps or not finish_s:
        return None
    first, counted = steps[0], steps[1:] if len(steps) > _WARM_STEPS else steps
    forwards = sum(_forwards(time, spec, video.cfg) for time in counted)
    forward_s = sum(time.seconds * time.steps for time in counted) / forwards
    load_s = sum(time.seconds for time in times if time.stage == Stage.LOADING)
    return Measured(
        forward_s,
        sum(time.seconds for time in times if time.stage == Stage.ENCODING),
        finish_s,
        load_s if load_s > _LOADED_S else None,
        max(0.0, first.seconds * first.steps - forward_s * _forwards(first, spec, video.cfg)),
    )


def _forwards(time: StageTime, spec: VideoSpec, cfg: int) -> float:
    guided = min(time.steps, max(0, guided_steps(spec) - (time.step - time.steps)))
    return guided * guided_forwards(spec, cfg) + time.steps - guided


def learned(book: PaceBook, kind: VideoKind, found: Measured) -> PaceBook:
    before = next((pace for pace in book.kinds if pace.kind == kind), None)
    pace = KindPace(kind, found.forward_s, found.encode_s, found.finish_s)
    if before is not None:
        pace = KindPace(
            kind,
            _blend(before.forward_s, found.forward_s),
            _blend(before.encode_s, found.encode_s),
            _blend(before.finish_s, found.finish_s),
        )
    others = tuple(other for other in book.kinds if other.kind != kind)
    book = replace(book, kinds=(pace, *others)[:_MAX_KINDS])
    if found.load_s is None:
        return book
    if book.load_s is None:
        return replace(book, load_s=found.load_s, warm_s=found.warm_s)
    return replace(book, load_s=_blend(book.load_s, found.load_s), warm_s=_blend(book.warm_s, found.warm_s))


def _blend(before: float, now: float) -> float:
    return before + _NEWEST * (now - before)


def expected(book: PaceBook, spec: VideoSpec, video: VideoPart) -> ExpectedTimes | None:
    """None while the model has made nothing."""
    kind = kind_of(spec, video)
    pace = next((pace for pace in book.kinds if pace.kind == kind), None)
    seen = pace is not None
    if pace is None and book.kinds:
        pace = _scaled(book.kinds, kind, video.rules)
    if pace is None:
        return None
    guided_s = pace.forward_s * guided_forwards(spec, video.cfg)
    return ExpectedTimes(pace.encode_s, guided_s, pace.forward_s, pace.finish_s, seen)


def _scaled(seen: Sequence[KindPace], kind: VideoKind, rules: VideoRules) -> KindPace:
    """By the kinds that are nearest in length, with the same options where there are such."""
    alike = [pace for pace in seen if pace.kind.options == kind.options] or seen
    size = _size(kind, rules)
    below = max(
        (p for p in alike if _size(p.kind, rules) <= size), key=lambda p: _size(p.kind, rules), default=None
    )
    above = min(
        (p for p in alike if _size(p.kind, rules) >= size), key=lambda p: _size(p.kind, rules), default=None
    )
    low, high = below or above, above or below
    assert low is not None
    assert high is not None
    shortest, longest = _size(low.kind, rules), _size(high.kind, rules)
    part = 0.0 if shortest == longest else log(size / shortest) / log(longest / shortest)
    near = low if part < 0.5 else high
    rate = (1 - part) * low.forward_s / _cost(low.kind, rules) + part * high.forward_s / _cost(
        high.kind, rules
    )
    finish_rate = (1 - part) * low.finish_s / low.kind.pixels + part * high.finish_s / high.kind.pixels
    return KindPace(kind, rate * _cost(kind, rules), near.encode_s, finish_rate * kind.pixels)


def _size(kind: VideoKind, rules: VideoRules) -> int:
    return max(1, tokens(kind.width, kind.height, kind.frames, rules))


def _cost(kind: VideoKind, rules: VideoRules) -> float:
    width = rules.heads * rules.head_dim
    cost = relative_cost(_size(kind, rules), width, kind.ulysses, kind.fp8, kind.fp8_attention)
    return cost * next(share for limit, share in _CACHE_SHARES if kind.step_cache <= limit)
