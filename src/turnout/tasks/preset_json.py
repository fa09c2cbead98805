"""Presets as HTTP shows them."""

from typing import Literal

from pydantic import BaseModel

from turnout.tasks.preset_rules import Preset


class PresetShown(BaseModel):
    """`source` is whose it is: the operator's, which nobody changes here, or one's own."""

    object: Literal["preset"] = "preset"
    name: str
    source: Literal["operator", "own"]
    settings: Preset


class PresetList(BaseModel):
    object: Literal["list"] = "list"
    data: list[PresetShown]


class PresetDeleted(BaseModel):
    name: str
    object: Literal["preset.deleted"] = "preset.deleted"
    deleted: bool = True
