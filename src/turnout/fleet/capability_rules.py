"""What a model is for, and what can be asked of it. Pure."""

import re

from turnout.fleet.model_rules import EngineKind, Model
from turnout.tasks.video_rules import ImageUse

_TASK_TYPES = {ImageUse.NONE: "T2V", ImageUse.REQUIRED: "I2V", ImageUse.OPTIONAL: "TI2V"}
_EMBEDDING = frozenset({"--embedding", "--convert=embed", "--runner=pooling"})
_TOOLS = "--enable-auto-tool-choice"
_SEEING_NAME = re.compile(r"(^|[-_./\d])(vl|vision|omni|llava|pixtral|internvl|minicpm-v)", re.IGNORECASE)


def task_type(model: Model) -> str:
    """What it is for, in the words that servers of video models use, `chat`, or `embedding`."""
    if model.video is not None:
        return _TASK_TYPES[model.video.rules.image]
    return "chat" if _EMBEDDING.isdisjoint(model.server.arguments) else "embedding"


def sees(model: Model) -> bool | None:
    """Whether it takes pictures; None: only its engine knows. Our llama.cpp server has no projectors."""
    if model.server.vision is not None:
        return model.server.vision
    if model.engine is EngineKind.LLAMACPP:
        return False
    return True if model.engine is EngineKind.VLLM and _SEEING_NAME.search(model.weights) else None


def capabilities(model: Model) -> tuple[str, ...]:
    """What can be asked of it, as far as its declaration tells: whether a chat template of llama.cpp knows tools is seen when
    it is asked."""
    match task_type(model):
        case "embedding":
            return ("embeddings",)
        case "chat":
            return (
                "chat",
                "completions",
                "responses",
                *(("vision",) if sees(model) else ()),
                *(("tools",) if _TOOLS in model.server.arguments else ()),
            )
        case "T2V":
            return ("text_to_video",)
        case "I2V":
            return ("image_to_video",)
        case _:
            return ("text_to_video", "image_to_video")
