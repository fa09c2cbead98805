"""What a model is for, and what can be asked of it. Pure."""

from turnout.fleet.model_rules import Model
from turnout.tasks.video_rules import ImageUse

_TASK_TYPES = {ImageUse.NONE: "T2V", ImageUse.REQUIRED: "I2V", ImageUse.OPTIONAL: "TI2V"}
_EMBEDDING = frozenset({"--embedding", "--convert=embed", "--runner=pooling"})
_TOOLS = "--enable-auto-tool-choice"


def task_type(model: Model) -> str:
    """What it is for, in the words that servers of video models use, `chat`, or `embedding`."""
    if model.video is not None:
        return _TASK_TYPES[model.video.rules.image]
    return "chat" if _EMBEDDING.isdisjoint(model.server.arguments) else "embedding"


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
                *(("tools",) if _TOOLS in model.server.arguments else ()),
            )
        case "T2V":
            return ("text_to_video",)
        case "I2V":
            return ("image_to_video",)
        case _:
            return ("text_to_video", "image_to_video")
