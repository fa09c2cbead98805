"""Versions of a model: who answers when a name is asked for that has several. Pure.

A model that is declared as a version of another one gets its share of what is asked of that one's name; the rest stays with
the model that has the name. Each can still be asked for by its own name.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from turnout.errors import InvalidRequest
from turnout.fleet.model_rules import Model

_POINTS = 2**64
_ROUNDING = 1e-9  # 0.7 + 0.2 + 0.1 is above 1


@dataclass(frozen=True, slots=True)
class VersionShare:
    model: str
    share: float


def versions_of(name: str, models: Iterable[Model]) -> tuple[VersionShare, ...]:
    """Those of the model, by name."""
    found = (VersionShare(m.name, m.version.share) for m in models if m.version.version_of == name)
    return tuple(sorted(found, key=lambda version: version.model))


def choose_version(
    name: str, versions: Sequence[VersionShare], asker: bytes, can_serve: Callable[[str], bool]
) -> str:
    """The model that answers for `name`. The same `asker` (a conversation, say) gets the same answer for as long as the shares
    stay as they are. A version that cannot serve leaves its share to the model that has the name."""
    digest = hashlib.blake2b(asker, digest_size=8, person=b"version").digest()
    at = int.from_bytes(digest) / _POINTS
    for version in versions:
        if at < version.share:
            return version.model if can_serve(version.model) else name
        at -= version.share
    return name


def check_version(model: Model, others: Iterable[Model]) -> None:
    """Raises InvalidRequest for a model that cannot stand beside the others as what it says it is."""
    known = {other.name: other for other in others if other.name != model.name} | {model.name: model}
    name = model.version.version_of
    if name is None:
        if model.version.share:
            raise InvalidRequest("share goes with version_of.", "share", "invalid_value")
        for version in versions_of(model.name, known.values()):
            _check_kind(known[version.model], model)
        return
    base = known.get(name)
    if base is None:
        raise _refused(f"There is no model {name}.")
    if base is model or base.version.version_of is not None:
        raise _refused(f"{name} is a version itself: name the model that it is a version of.")
    if versions_of(model.name, known.values()):
        raise _refused(f"{model.name} has versions: it cannot be one.")
    _check_kind(model, base)
    total = sum(version.share for version in versions_of(name, known.values()))
    if total > 1 + _ROUNDING:
        raise InvalidRequest(
            f"The versions of {name} would have {total:g} of it: at most 1.", "share", "invalid_value"
        )


def _check_kind(version: Model, base: Model) -> None:
    if (version.video is None) is not (base.video is None):
        raise _refused(f"{version.name} cannot be a version of {base.name}: one makes videos, one does not.")


def _refused(said: str) -> InvalidRequest:
    return InvalidRequest(said, "version_of", "invalid_value")
