"""What a chat model is asked to make of a prompt, and what of its answer becomes the prompt. Pure."""

import re
from typing import Any, cast

from turnout.tasks.video_rules import MAX_PROMPT_CHARS, PromptLanguage

MAX_TOKENS = 400
_LANGUAGES = {PromptLanguage.ENGLISH: "English", PromptLanguage.CHINESE: "Chinese"}
_SAME = "the language of the user's prompt"
_TASK = (
    "You rewrite prompts for a model that makes {what} from text. Keep every subject, action, colour, number and style that the"
    " user names, and contradict none of them. Add what a camera would see: the looks of the subject, {moves}the place, the light,"
    " the framing.{begins} Write one paragraph of at most 100 words, in {language}. Answer with the new prompt alone: no title,"
    " no quotation marks, no explanation."
)
_BEGINS = (
    " The clip begins with a picture that the user has: say what happens from there on, not what is in it."
)
_THOUGHTS = re.compile(r"<think>.*?(</think>|$)", re.DOTALL)
_QUOTES = "\"'“”‘’「」『』`*"  # noqa: RUF001
_SENTENCE_ENDS = ".!?。！？"  # noqa: RUF001


def asking_for(
    prompt: str, model: str, language: PromptLanguage | None, *, image: bool, still: bool
) -> dict[str, Any]:
    """The chat request. `image`: there is a first frame; `still`: a single picture is made."""
    task = _TASK.format(
        what="a picture" if still else "short videos",
        moves="" if still else "how it moves, ",
        begins=_BEGINS if image else "",
        language=_SAME if language is None else _LANGUAGES[language],
    )
    messages = [{"role": "system", "content": task}, {"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0.4}


def prompt_in(answer: object) -> str | None:
    """The prompt that a chat completion has; None if there is none in it."""
    match cast("Any", answer):
        case {"choices": [{"message": {"content": str(said)}, "finish_reason": ended}, *_]}:
            text = " ".join(_THOUGHTS.sub("", said).split()).strip(_QUOTES).strip()
            if ended == "length" or len(text) > MAX_PROMPT_CHARS:
                text = _whole_sentences(text[:MAX_PROMPT_CHARS])
            return text or None
        case _:
            return None


def _whole_sentences(text: str) -> str:
    return text[: max(map(text.rfind, _SENTENCE_ENDS)) + 1]
