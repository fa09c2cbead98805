"""Has a chat model of this service rewrite prompts, in the name of whoever asks: the request goes through the same admission as
theirs, and counts against their limits."""

import asyncio
import json
from dataclasses import dataclass

from pydantic_core import from_json

from turnout.errors import Limited, OverBudget, TurnoutError, Unavailable
from turnout.fleet.catalog import Catalog
from turnout.fleet.model_rules import EngineKind, Model
from turnout.relay import Headers, OwnAnswer, Relay
from turnout.tasks.prompt_rules import asking_for, prompt_in
from turnout.tasks.task_rules import Task, TaskFailure
from turnout.telemetry.log import get_log

_CHAT = b"/v1/chat/completions"
_MAX_ANSWER_BYTES = 256 * 1024
_TEMPLATES = (EngineKind.VLLM, EngineKind.LLAMACPP)  # whose chat templates take options
_MAX_REASON_CHARS = 300
_REFUSALS: dict[int, type[TurnoutError]] = {402: OverBudget, 429: Limited}  # those of the caller's own bounds


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What became of it: `prompt` is the new one, None if it failed."""

    prompt: str | None
    failure: TaskFailure | None


def rewriting_of(task: Task) -> Rewriting:
    """What became of the prompt of a task that was to have it rewritten."""
    prompt = task.spec.prompt if task.original_prompt is not None else None
    return Rewriting(prompt, task.rewrite_failure)


@dataclass(frozen=True, slots=True)
class PromptRewriter:
    """`model` is the chat model, which the operator names. An answer, waking included, must come within `deadline_s`."""

    model: str
    deadline_s: float
    relay: Relay
    catalog: Catalog

    async def rewrite(self, prompt: str, video: Model, headers: Headers, *, image: bool, still: bool) -> str:
        """The prompt in the video model's language. `headers` are those of the request that asks for it. Raises a TurnoutError."""
        language = video.gang.rules.prompt_language
        asked = asking_for(prompt, self.model, language, image=image, still=still)
        chat = await self.catalog.find(self.model)
        if chat is not None and chat.engine in _TEMPLATES:
            asked["chat_template_kwargs"] = {"enable_thinking": False}
        authorization = next((value for name, value in headers if name == b"authorization"), None)
        try:
            async with asyncio.timeout(self.deadline_s):
                answer = await self.relay.ask(
                    _CHAT, authorization, headers, json.dumps(asked).encode(), _MAX_ANSWER_BYTES
                )
        except TimeoutError as err:
            raise Unavailable(
                f"{self.model} has not answered in {self.deadline_s:g} s.", code="prompt_too_late"
            ) from err
        return self._read(answer)

    async def try_rewrite(
        self, prompt: str, video: Model, headers: Headers, *, image: bool, still: bool
    ) -> Rewriting:
        """The same for whoever goes on with the prompt as it was."""
        try:
            found = await self.rewrite(prompt, video, headers, image=image, still=still)
            return Rewriting(found, None)
        except TurnoutError as err:
            get_log().warning("prompt not rewritten", model=self.model, code=err.code, reason=err.message)
            return Rewriting(None, TaskFailure(err.code or "prompt_unanswered", err.message))

    def _read(self, answer: OwnAnswer | None) -> str:
        try:
            said: object = from_json(answer.body) if answer is not None else None
        except ValueError:
            said = None
        if answer is not None and answer.status != 200:
            match said:
                case {"error": {"message": str(message), "code": (str() | None) as code}}:
                    refusal = _REFUSALS.get(answer.status, Unavailable)
                    raise refusal(message[:_MAX_REASON_CHARS], code=code)
                case _:
                    pass
        prompt = prompt_in(said)
        if prompt is None:
            raise Unavailable(f"{self.model} answered with no prompt.", code="prompt_unanswered")
        return prompt
