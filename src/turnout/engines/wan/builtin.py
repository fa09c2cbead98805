"""Finds the folder of a model's weights: a path, a model that was pulled from a hub, or a tiny one (trained weights that
`turnout[local]` brings; others are made on the spot)."""

import fcntl
import json
import re
import unicodedata
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from turnout.engines.wan.shape import WanKind
from turnout.errors import Misconfigured
from turnout.extras import LOCAL
from turnout.fleet.model_rules import BUILTIN

_KINDS: dict[str, WanKind] = {"wan-tiny-t2v": "t2v", "wan-tiny-ti2v": "ti2v", "wan-tiny-i2v": "i2v"}
_TRAINED = {"wan-tiny-t2v", "wan-tiny-ti2v"}
_HAN = re.compile("[㐀-鿿]")
_WORDS = re.compile(rf"{_HAN.pattern}+|[^\W㐀-鿿]+")
_SHORTEST_STEM = 3
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def find_weights(weights: str, models: Path, whole: bool = True) -> Path:
    """The directory that `weights` names; `builtin:NAME` is looked up in the package, then made in `models`. `whole` says
    that it must be a model in diffusers' format."""
    found = present_weights(weights, models, whole)
    if found is not None:
        return found
    name = weights.removeprefix(BUILTIN)
    made = models / name
    models.mkdir(parents=True, exist_ok=True)
    # Ranks start together: one of them makes the model, the others wait for it.
    with (models / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            from turnout.engines.wan.tiny import make_tiny

            make_tiny(_KINDS[name], made)
    return made


def present_weights(weights: str, models: Path, whole: bool = True) -> Path | None:
    """The directory that `weights` names; None for a builtin model that is made when it is first used."""
    if not weights.startswith(BUILTIN):
        path = Path(weights).expanduser()
        if not path.exists() and is_hub_id(weights):
            path = pulled(weights, models)
        if whole and not (path / "model_index.json").is_file():
            hint = f"; fetch it with: turnout models pull {weights}" if is_hub_id(weights) else ""
            raise Misconfigured(f"{path} holds no model: there is no model_index.json{hint}")
        return path
    name = weights.removeprefix(BUILTIN)
    if name not in _KINDS:
        raise Misconfigured(f"there is no builtin model {name}; known: {', '.join(_KINDS)}")
    shipped = _shipped(name)
    if shipped is None and name in _TRAINED:
        raise Misconfigured(f"the weights of {name} are not installed: {LOCAL}")
    return shipped


def _shipped(name: str) -> Path | None:
    """Where trained weights lie: in a checkout beside the sources, else in a package of their own."""
    folders = [Path(str(files("turnout") / "weights"))]
    if found := find_spec("turnout_tiny"):
        folders += map(Path, found.submodule_search_locations or ())
    return next((folder / name for folder in folders if (folder / name).is_dir()), None)


def is_hub_id(weights: str) -> bool:
    return _HUB_ID.fullmatch(weights) is not None


def pulled(hub_id: str, models: Path) -> Path:
    """Where `turnout models pull` puts a model."""
    return models / hub_id


@cache
def _vocabulary(weights: str) -> frozenset[str] | None:
    """The words that a model which comes along was taught; None for others."""
    name = weights.removeprefix(BUILTIN)
    shipped = _shipped(name) if name != weights and name in _KINDS else None
    if shipped is None:
        return None
    return frozenset(json.loads((shipped / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"])


def unknown_words(weights: str, prompt: str) -> list[str]:
    """The words of a prompt that the model was not taught, in their order; none for a model that reads any. Of Chinese,
    where no spaces part the words, the characters that it was not taught, neighbours together."""
    known = _vocabulary(weights)
    if known is None:
        return []
    text = re.sub("['’]", "", unicodedata.normalize("NFKC", prompt).lower()).replace("_", " ")
    unknown: list[str] = []
    for word in _WORDS.findall(text):
        if _HAN.match(word):
            unknown += "".join(" " if c in known else c for c in word).split()
        elif len(word) > 1 and word not in known and not _is_inflected(word, known):
            unknown.append(word)
    return list(dict.fromkeys(unknown))


def _is_inflected(word: str, known: frozenset[str]) -> bool:
    """Whether it is a known word with an ending that the tokenizer knows ("greenish")."""
    return any(
        word[:cut] in known and f"##{word[cut:]}" in known for cut in range(_SHORTEST_STEM, len(word) - 1)
    )
