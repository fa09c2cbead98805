"""The models that can be pulled by name, with what registers each: data of the package (`catalogue.yaml`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """`repo` is its name at every hub, `include` what of it is pulled, `file` the one that the engine is given. `register` is its
    declaration without name and weights."""

    repo: str
    gigabytes: float
    about: Mapping[str, str]
    register: Mapping[str, Any]
    include: tuple[str, ...] = ()
    file: str | None = None

    def declaration(self, name: str, folder: Path) -> dict[str, Any]:
        """What registers it once it lies in `folder`. The video engines find a pulled model by its name."""
        video = self.register["engine"] == "wan"
        weights = self.repo if video else str(folder / self.file if self.file else folder)
        return {"alias": name, "model_name": weights, **self.register}


@dataclass(frozen=True, slots=True)
class Catalogue:
    models: Mapping[str, CatalogueModel] = field(default_factory=dict[str, CatalogueModel])

    def named(self, name: str) -> CatalogueModel | None:
        return self.models.get(name)


@cache
def catalogue() -> Catalogue:
    content = yaml.safe_load(files("turnout").joinpath("fleet/catalogue.yaml").read_text())
    return Catalogue(TypeAdapter(dict[str, CatalogueModel]).validate_python(content))
