"""Prompts made better by a chat model, for whoever wants to see and change them before a video is made."""

from fastapi import APIRouter, Request

from turnout.errors import InvalidRequest, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.prompt_json import EnhancedPrompt, PromptRequest
from turnout.tenants.auth import UserDep

router = APIRouter(tags=["videos"], responses=documented(400, 401, 402, 403, 404, 413, 415, 429, 500, 503))


@router.post("/v1/prompts/enhance", openapi_extra=json_body(PromptRequest), summary="Rewrite a prompt")
async def enhance(request: Request, caller: UserDep, gateway: GatewayDep) -> EnhancedPrompt:
    """Answers when the chat model has, which may have to wake. It counts as a chat request of the caller's."""
    asked, rewriter = await read_json(request, PromptRequest), gateway.videos.submissions.rewriter
    if rewriter is None:
        raise InvalidRequest("This service has no model that rewrites prompts.", code="unsupported")
    model = await gateway.catalog.find(asked.model)
    if model is None or model.video is None:
        raise no_such("model", asked.model)
    prompt = await rewriter.rewrite(
        asked.prompt, model, request.headers.raw, image=asked.image, still=asked.still
    )
    return EnhancedPrompt(prompt=prompt, original_prompt=asked.prompt, prompt_model=rewriter.model)
