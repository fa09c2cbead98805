"""The registry over HTTP: models that workers can run, registered, looked at and removed by admins."""

from fastapi import APIRouter, Request

from turnout.domain.errors import Conflict, Forbidden, InvalidRequest, NotFound
from turnout.domain.serving import EngineKind, Needs, ServedModel
from turnout.engines.servers import check_served
from turnout.gateway.auth import AdminDep
from turnout.gateway.bodies import read_json
from turnout.gateway.parts import PartsDep
from turnout.gateway.problems import documented
from turnout.observe import get_log
from turnout.wire.models import ModelRemoved, RegisterRequest, ServedShown, served_of
from turnout.wire.openai import schema_of

router = APIRouter(tags=["models"], responses=documented(401, 403, 500, 503))

_BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": schema_of(RegisterRequest)}}}
}


@router.post(
    "/v1/models/register",
    responses=documented(400, 409, 413, 415),
    openapi_extra=_BODY,
    summary="Register a model",
)
async def register(request: Request, admin: AdminDep, parts: PartsDep) -> ServedShown:
    """Registering a known alias again changes it: its replicas are replaced as they become idle."""
    body = await read_json(request, RegisterRequest)
    if any(model.name == body.alias for model in parts.config.models):
        raise Conflict(f"{body.alias} is a video model of this service.", "alias", "alias_taken")
    if body.engine is EngineKind.WAN:
        raise InvalidRequest("wan models are declared in turnout.yaml.", "engine", "unsupported")
    if body.engine is EngineKind.COMMAND and not parts.config.allow_registered_commands:
        raise Forbidden(
            "Commands run on workers: declare them in turnout.yaml, or set allow_registered_commands.",
            "engine",
            "command_not_allowed",
        )
    model = _model(body)
    check_served(model)
    await parts.registry.put_model(model)
    get_log().info("model registered", model=model.name, engine=model.engine, by=admin.id)
    return served_of(model, "registered")


@router.delete("/v1/models/{name}", responses=documented(404), summary="Remove a model")
async def remove(name: str, admin: AdminDep, parts: PartsDep) -> ModelRemoved:
    if not await parts.registry.remove_model(name):
        raise NotFound(f"There is no model {name[:100]}.", "model", "model_not_found")
    get_log().info("model removed", model=name, by=admin.id)
    return ModelRemoved(id=name)


def _model(body: RegisterRequest) -> ServedModel:
    given = body.model_dump(exclude={"alias", "model_name", "gpus", "gpu_memory_bytes", "memory_bytes"})
    # A vLLM replica takes one GPU for each part of the tensors, unless told otherwise.
    gpus = body.gpus if body.gpus is not None else _default_gpus(body)
    needs = Needs(gpus, body.gpu_memory_bytes, body.memory_bytes)
    return ServedModel(name=body.alias, weights=body.model_name, needs=needs, **given)


def _default_gpus(body: RegisterRequest) -> int:
    return body.tensor_parallel_size if body.engine is EngineKind.VLLM else 0
