"""The models that come with the package: trained weights where they ship, made on the spot where they do not."""

import fcntl
from importlib.resources import files
from pathlib import Path

from turnout.domain.errors import Misconfigured
from turnout.engines.wan.shape import WanKind

_KINDS: dict[str, WanKind] = {"wan-tiny-t2v": "t2v", "wan-tiny-ti2v": "ti2v", "wan-tiny-i2v": "i2v"}


def find_weights(weights: str, cache: Path) -> Path:
    """The directory that `weights` names; `builtin:NAME` is looked up in the package, then made under `cache`."""
    found = present_weights(weights)
    if found is not None:
        return found
    name = weights.removeprefix("builtin:")
    made = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    # RankLayout start together: one of them makes the model, the others wait for it.
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            from turnout.engines.wan.tiny import make_tiny  # torch

            make_tiny(_KINDS[name], made)
    return made


def present_weights(weights: str) -> Path | None:
    """The directory that `weights` names; None for a builtin model that is made when it is first used."""
    if not weights.startswith("builtin:"):
        path = Path(weights).expanduser()
        if not (path / "model_index.json").is_file():
            raise Misconfigured(f"{path} holds no model: there is no model_index.json")
        return path
    name = weights.removeprefix("builtin:")
    shipped = Path(str(files("turnout") / "weights" / name))
    if shipped.is_dir():
        return shipped
    if name not in _KINDS:
        raise Misconfigured(f"there is no builtin model {name}; there are {', '.join(_KINDS)}")
    return None
