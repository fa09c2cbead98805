"""Presets: settings of videos under a name, of the operator's or of one's own. Pure."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from turnout.tasks.video_rules import MAX_PROMPT_CHARS

MAX_PRESETS = 50
PRESET_NAME = r"^[^\s/\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,59}$"

_Number = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
_Whole = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class Preset:
    """What a submission has of the same name; None leaves it as it is. Without a `model` it is for every one. Whether a model can do
    it is said when a video is asked for."""

    model: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    size: Annotated[str, Field(pattern=r"^[1-9][0-9]{1,4}x[1-9][0-9]{1,4}$")] | None = None
    frames: _Whole | None = None
    fps: _Whole | None = None
    steps: _Whole | None = None
    guidance: Annotated[tuple[_Number, ...], Field(min_length=1, max_length=2)] | None = None
    shift: _Number | None = None
    guided_share: _Number | None = None
    step_cache: _Number | None = None
    fp8_attention: bool | None = None
    loras: Annotated[tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=8)] | None = None
    negative_prompt: Annotated[str, Field(max_length=MAX_PROMPT_CHARS)] | None = None


@dataclass(frozen=True, slots=True)
class PresetGiven(Preset):
    """As people write it: what it does not know is refused."""

    __pydantic_config__ = ConfigDict(extra="forbid")


PresetName = Annotated[str, Field(pattern=PRESET_NAME)]
