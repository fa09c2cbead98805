"""Whether a machine could run a model that lies on a hub, by what its files take."""

from collections.abc import Iterable, Sequence

from turnout.engines.fit_verdict import FitVerdict, part
from turnout.engines.hub import RemoteFile
from turnout.engines.wan.model_fit import StoredModel, offered_clips, size_of, usual_modes, verdict

_BESIDE_WEIGHTS = 1.2  # the least that a server's caches and graphs take with them
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")


def video_verdict(model: StoredModel, gpus: Sequence[int]) -> FitVerdict:
    """In the first way that fits."""
    if not gpus:
        return FitVerdict(None, (part("no_gpu"),))
    clips = offered_clips(model.shape)
    found = [(mode, verdict(model, mode, clips, gpus)) for mode in usual_modes(model.shape)]
    mode, said = next((one for one in found if one[1].fits), found[0])
    return FitVerdict(said.fits, (part("mode", mode=f"{mode}"), *said.parts))


def chat_verdict(files: Iterable[RemoteFile], gpus: Sequence[int]) -> FitVerdict:
    """By the weights alone: how long prompts may be is the engine's matter."""
    weights = sum(file.size for file in files if file.path.endswith(_WEIGHTS))
    if not weights:
        return FitVerdict(False, (part("no_weights"),))
    said = part("weights", size=size_of(weights))
    if not gpus:
        return FitVerdict(None, (said, part("no_gpu")))
    has = sum(gpus)
    fits = weights * _BESIDE_WEIGHTS <= has
    return FitVerdict(fits, (said, part("gpus_have", gpus=len(gpus), size=size_of(has))))
