"""The configured models in OpenAI's list shape, with what each can make."""

from fastapi import APIRouter

from turnout.domain.errors import NotFound
from turnout.gateway.auth import UserDep
from turnout.gateway.parts import PartsDep
from turnout.gateway.problems import documented
from turnout.wire.models import ModelList, ModelShown, ServedShown, model_of, served_of

_UNTOLD = "the manager has not looked at it yet"

router = APIRouter(tags=["models"], responses=documented(401, 403, 500, 503))


@router.get("/v1/models", summary="List models")
async def index(key: UserDep, parts: PartsDep) -> ModelList:
    served, status = await parts.registry.models(), await parts.registry.status()
    return ModelList(
        data=[
            *(model_of(model) for model in parts.config.models),
            *(served_of(served[name], status.get(name, _UNTOLD)) for name in sorted(served)),
        ]
    )


@router.get("/v1/models/{name}", responses=documented(404), summary="Look at a model")
async def show(name: str, key: UserDep, parts: PartsDep) -> ModelShown | ServedShown:
    for model in parts.config.models:
        if model.name == name:
            return model_of(model)
    try:
        served = await parts.registry.model(name)
    except NotFound as err:
        raise NotFound(f"There is no model {name[:100]}.", "model", "model_not_found") from err
    return served_of(served, (await parts.registry.status()).get(name, _UNTOLD))
