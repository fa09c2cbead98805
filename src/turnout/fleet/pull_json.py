"""Pulls and the catalogue as HTTP shows them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from turnout.fleet.pull_rules import HUB_ID, PullState
from turnout.validation import Body

HubName = Literal["huggingface", "modelscope"]


class PullRequest(Body):
    """`name` is one of the catalogue's; or `repo` any model's at the hub. Where a hub is, is the operator's to say."""

    name: str | None = Field(None, max_length=100)
    repo: Annotated[str, Field(pattern=HUB_ID)] | None = Field(
        None, description="As Wan-AI/Wan2.2-TI2V-5B-Diffusers."
    )
    hub: HubName = "huggingface"


class PullShown(BaseModel):
    """`bytes` of `of` are here. `reason_code` is empty where nothing but the words is known. `register_as` registers the model once
    it is completed; None where the catalogue does not know it."""

    id: str
    object: Literal["pull"] = "pull"
    name: str | None
    repo: str
    hub: str
    state: PullState
    bytes: int
    of: int
    reason: str
    reason_code: str
    asked_at: float
    ended_at: float | None
    folder: str
    register_as: dict[str, Any] | None


class PullList(BaseModel):
    """`offered`: whether models can be pulled here at all."""

    object: Literal["list"] = "list"
    offered: bool
    free_bytes: int
    data: list[PullShown]


class CatalogueEntry(BaseModel):
    name: str
    object: Literal["catalogue_model"] = "catalogue_model"
    repo: str
    gigabytes: float
    about: dict[str, str]
    engine: str
    vision: bool


class CatalogueList(BaseModel):
    object: Literal["list"] = "list"
    data: list[CatalogueEntry]


class VerdictPartShown(BaseModel):
    code: str
    params: dict[str, str | int]


class PullVerdict(BaseModel):
    """What `turnout models check` says of a model before it is pulled, for this machine. `fits` is None where there is no GPU to
    judge by. `parts` are `words` for whoever says them in another language."""

    object: Literal["verdict"] = "verdict"
    repo: str
    hub: str
    fits: bool | None
    words: str
    parts: list[VerdictPartShown]
    download_bytes: int
    free_bytes: int
