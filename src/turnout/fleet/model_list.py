"""The registered models in OpenAI's list shape, with what each can make and how it stands."""

from fastapi import APIRouter

from turnout.fleet.model_json import AnyModelShown, ModelList, VideoModelShown, shown, shown_to_users
from turnout.fleet.model_rules import Model
from turnout.fleet.status_rules import NOT_LOOKED_AT, ModelStatus
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import Caller
from turnout.tenants.key_rules import Role

router = APIRouter(tags=["models"], responses=documented(401, 403, 500, 503))


@router.get("/v1/models", summary="List models")
async def index(caller: UserDep, gateway: GatewayDep) -> ModelList:
    statuses = await gateway.stores.fleet.status.statuses()
    models = (await gateway.catalog.all()).values()
    data = [
        await _shown_to(caller, gateway, model, statuses.get(model.name, NOT_LOOKED_AT)) for model in models
    ]
    return ModelList(data=data)


@router.get("/v1/models/{name}", responses=documented(404), summary="Look at a model")
async def show(name: str, caller: UserDep, gateway: GatewayDep) -> AnyModelShown:
    model = await gateway.stores.fleet.models.get(name)
    status = (await gateway.stores.fleet.status.statuses()).get(name, NOT_LOOKED_AT)
    return await _shown_to(caller, gateway, model, status)


async def _shown_to(caller: Caller, gateway: Gateway, model: Model, status: ModelStatus) -> AnyModelShown:
    answer = shown(model, status) if caller.role is Role.ADMIN else shown_to_users(model, status)
    if isinstance(answer, VideoModelShown):
        queue = await gateway.stores.backlog.figures(model.name)
        answer.waiting, answer.running = max(0, queue.length - queue.running), queue.running
        answer.prompt_model = gateway.videos.settings.prompt_model
    return answer
