"""Checks what is asked for before a task is accepted, and what was made before it is shown: by the word list, then by the
operator's own check over HTTP. What that is told and answers is in `docs/configuration.md`."""

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from turnout.errors import InvalidRequest, NotFound, TurnoutError, Unavailable
from turnout.store.object_store import Blobs
from turnout.store.outbound import Outbound
from turnout.tasks.check_rules import ContentRefusal, has_word, refusal_in
from turnout.tasks.task_rules import Result, Task, TaskFailure
from turnout.tasks.task_settings import CheckSettings
from turnout.telemetry.log import get_log
from turnout.tenants.turn_rules import Turn, turn_of

_MAX_ANSWER_BYTES = 65_536
_UNANSWERED = "The check of this service does not answer now."


class _NoVerdict(Exception):
    pass


@dataclass(frozen=True, slots=True)
class ContentCheck:
    """`token` is what the operator's check knows this service by. The URL is the operator's, so that it may be private."""

    settings: CheckSettings
    token: str | None
    caller: Outbound
    blobs: Blobs

    @property
    def sees_results(self) -> bool:
        """Then no preview is shown, either: it would be seen before the check has spoken."""
        return self.settings.url is not None and self.settings.results

    @property
    def calls(self) -> bool:
        """Whether somebody is called for a prompt: that is for what the tenant's limits let through."""
        return self.settings.url is not None

    def refuse_words(self, task: Task) -> None:
        """Raises InvalidRequest."""
        said = (task.spec.prompt, task.spec.negative_prompt)
        if any(has_word(text, self.settings.words) for text in said):
            raise _refused(task, ContentRefusal("The prompt has words that are not allowed here."))

    async def refuse_prompt(self, task: Task) -> None:
        """Raises InvalidRequest, and Unavailable where no verdict came and that counts as a refusal."""
        self.refuse_words(task)
        try:
            refusal = await self._ask(task, "prompt", {}, turn_of(task.tenant, task.person))
        except _NoVerdict:
            raise Unavailable(_UNANSWERED, code="check_unavailable", retry_after_s=5.0) from None
        if refusal is not None:
            raise _refused(task, refusal)

    async def failure_of(self, task: Task, result: Result) -> TaskFailure | None:
        """How the task ends in place of being completed, if what was made must not be shown."""
        if not self.sees_results:
            return None
        try:
            sheet = base64.b64encode(await self.blobs.get(result.spritesheet)).decode()
            refusal = await self._ask(task, "result", {"contact_sheet": sheet}, Turn(task.tenant))
        except _NoVerdict:
            return TaskFailure("check_unavailable", _UNANSWERED)
        except NotFound:
            return TaskFailure("check_unavailable", "What was made could not be read for the check.")
        if refusal is None:
            return None
        get_log().info("result refused", **task.log_ids, tenant=task.tenant)
        return TaskFailure("content_refused", refusal.reason)

    async def _ask(
        self, task: Task, what: str, more: Mapping[str, Any], whose: Turn
    ) -> ContentRefusal | None:
        """Raises _NoVerdict where none came in time and that counts as a refusal."""
        if self.settings.url is None:
            return None
        told = {
            "type": what,
            "task": task.id,
            "tenant": task.tenant,
            "model": task.model,
            "prompt": task.spec.prompt,
            "negative_prompt": task.spec.negative_prompt,
            **more,
        }
        headers = {"content-type": "application/json"}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        try:
            async with asyncio.timeout(self.settings.deadline_s):
                answer = await self.caller.post_for(
                    self.settings.url, headers, json.dumps(told).encode(), _MAX_ANSWER_BYTES, whose
                )
            return refusal_in(from_json(answer))
        except (TurnoutError, TimeoutError, ValueError) as err:
            get_log().warning("check has no verdict", task=task.id, what=what, problem=str(err) or "too late")
            if self.settings.unanswered == "refuse":
                raise _NoVerdict from err
            return None


def _refused(task: Task, refusal: ContentRefusal) -> InvalidRequest:
    get_log().info("prompt refused", tenant=task.tenant, model=task.model)
    return InvalidRequest(refusal.reason, "prompt", "content_refused")
