"""A prompt and what became of it, as HTTP shows them."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tasks.video_rules import MAX_PROMPT_CHARS
from turnout.validation import Body


class PromptRequest(Body):
    prompt: str = Field(min_length=1, max_length=MAX_PROMPT_CHARS)
    model: str = Field(description="The video model that it is for.")
    image: bool = Field(False, description="Whether the clip begins with a picture.")
    still: bool = Field(False, description="Whether it is for a picture of one frame.")


class EnhancedPrompt(BaseModel):
    """`prompt` is what `prompt_model` made of `original_prompt`."""

    object: Literal["prompt.enhanced"] = "prompt.enhanced"
    prompt: str
    original_prompt: str
    prompt_model: str
