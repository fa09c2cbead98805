"""Whether a machine could run a model that lies on a hub: in a few words, by what its files take."""

from collections.abc import Iterable, Sequence

from turnout.engines.hub import RemoteFile
from turnout.engines.wan.model_fit import StoredModel, offered_clips, size_of, usual_modes, verdict

_BESIDE_WEIGHTS = 1.2  # the least that a server's caches and graphs take with them
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")


def video_verdict(model: StoredModel, gpus: Sequence[int]) -> tuple[bool | None, str]:
    """In the first way that fits; None where there is no GPU."""
    if not gpus:
        return None, "there is no GPU here to judge by"
    clips = offered_clips(model.shape)
    found = [(mode, *verdict(model, mode, clips, gpus)) for mode in usual_modes(model.shape)]
    mode, fits, words = next((one for one in found if one[1]), found[0])
    return fits, f"{mode}: {words}"


def chat_verdict(files: Iterable[RemoteFile], gpus: Sequence[int]) -> tuple[bool | None, str]:
    """By the weights alone: how long prompts may be is the engine's matter."""
    weights = sum(file.size for file in files if file.path.endswith(_WEIGHTS))
    if not weights:
        return False, "it has no weights in a format that is known"
    said = f"{size_of(weights)} of weights"
    if not gpus:
        return None, f"{said}; there is no GPU here to judge by"
    has = sum(gpus)
    fits = weights * _BESIDE_WEIGHTS <= has
    return fits, f"{said}; {len(gpus)} GPUs here have {size_of(has)}"
