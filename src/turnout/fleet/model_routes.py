"""The registry over HTTP: models that workers can run, registered, looked at and removed by admins."""

from dataclasses import replace

from fastapi import APIRouter, Request

from turnout.engines.servers.engine_servers import check_served
from turnout.errors import Conflict, Forbidden, InvalidRequest, no_such
from turnout.fleet.declared_models import ModelDeclaration, read_model
from turnout.fleet.model_json import AnyModelShown, ModelDeleted, VersionShareRequest, shown
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.placement_rules import could_ever_fit, why_nowhere
from turnout.fleet.route_rules import cannot_serve
from turnout.fleet.status_rules import NOT_LOOKED_AT, REGISTERED
from turnout.fleet.version_rules import check_version, versions_of
from turnout.fleet.worker_rules import Standing
from turnout.gateway.bodies import json_body, read_json, read_json_value
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep

router = APIRouter(tags=["models"], responses=documented(401, 403, 500, 503))


def _not_allowed(what: str, param: str) -> Forbidden:
    said = f"{what} run code on workers: declare them in turnout.yaml, or set allow_registered_commands."
    return Forbidden(said, param, "command_not_allowed")


@router.post(
    "/v1/models/register",
    responses=documented(400, 413, 415),
    openapi_extra=json_body(ModelDeclaration),
    summary="Register a model",
)
async def register(request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> AnyModelShown:
    """Registering a known alias again changes it: its replicas are replaced as they become idle. `notice` says why no worker
    could run it now, if none could."""
    model = read_model(await read_json_value(request))
    if not gateway.workers.allow_registered_commands:
        if model.engine is EngineKind.COMMAND:
            raise _not_allowed("Commands", "engine")
        if model.video is not None and model.video.runs_named_code:
            raise _not_allowed("Import paths", "video_engine")
    check_served(model)
    check_version(model, (await gateway.stores.fleet.models.all()).values())
    await audit.record(
        admin, AuditAction.MODEL_REGISTERED, model.name, engine=model.engine, weights=model.weights
    )
    await gateway.stores.fleet.models.put(model)
    gateway.catalog.invalidate()
    answer = shown(model, REGISTERED)
    answer.notice = await _why_nowhere(gateway, model)
    return answer


@router.post("/v1/models/{name}/wake", responses=documented(404), summary="Start a model now")
async def wake(name: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> AnyModelShown:
    """It leaves again when nobody has asked for it for its idle time."""
    model = await gateway.stores.fleet.models.get(name)
    refusal = gateway.chat.routes.refusal(name)
    if refusal is not None:
        raise cannot_serve(name, refusal)
    await audit.record(admin, AuditAction.MODEL_WOKEN, name)
    await gateway.stores.fleet.demand.wish(name, stop=False)
    return await _shown(gateway, model)


@router.post("/v1/models/{name}/stop", responses=documented(404, 409), summary="Stop a model now")
async def stop(name: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> AnyModelShown:
    """Its replicas finish what they have and leave; the next request wakes it again."""
    model = await gateway.stores.fleet.models.get(name)
    if model.scaling.min_replicas:
        raise Conflict(f"{name} has min_replicas {model.scaling.min_replicas}.", "name", "kept_awake")
    await audit.record(admin, AuditAction.MODEL_STOPPED, name)
    await gateway.stores.fleet.demand.wish(name, stop=True)
    return await _shown(gateway, model)


@router.post(
    "/v1/models/{name}/share",
    responses=documented(400, 404, 413, 415),
    openapi_extra=json_body(VersionShareRequest),
    summary="Set a version's share",
)
async def set_share(
    name: str, request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep
) -> AnyModelShown:
    """How much of what is asked of the model that it is a version of goes to it from now on. No replica is replaced. A model of
    `turnout.yaml` has the file's share again when the manager starts next."""
    share = (await read_json(request, VersionShareRequest)).share
    model = await gateway.stores.fleet.models.get(name)
    if model.version.version_of is None:
        raise InvalidRequest(f"{name} is a version of no model.", "name", "invalid_value")
    model = replace(model, version=replace(model.version, share=share))
    check_version(model, (await gateway.stores.fleet.models.all()).values())
    await audit.record(admin, AuditAction.MODEL_SHARE_SET, name, share=f"{share:g}")
    await gateway.stores.fleet.models.change(model)
    gateway.catalog.invalidate()
    return await _shown(gateway, model)


async def _why_nowhere(gateway: Gateway, model: Model) -> str | None:
    workers, rules = gateway.stores.fleet.workers, gateway.workers.gangs.rules
    beats = (await workers.heartbeats(list(await workers.enrolments()))).values()
    machines = [beat.machine for beat in beats if rules.standing(beat.ago_s) is not Standing.GONE]
    if any(could_ever_fit(model, machine) for machine in machines):
        return None
    if model.video is not None and not machines:
        return None  # gangs on Ray need no worker
    return why_nowhere(model, machines)


async def _shown(gateway: Gateway, model: Model) -> AnyModelShown:
    return shown(model, (await gateway.stores.fleet.status.statuses()).get(model.name, NOT_LOOKED_AT))


@router.delete("/v1/models/{name}", responses=documented(404, 409), summary="Remove a model")
async def remove(name: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> ModelDeleted:
    """Its replicas leave once they are idle; its waiting tasks end with an error."""
    versions = versions_of(name, (await gateway.stores.fleet.models.all()).values())
    if versions:
        raise Conflict(
            f"{versions[0].model} is a version of {name}: remove it first.", "name", "has_versions"
        )
    await audit.record(admin, AuditAction.MODEL_REMOVED, name[:100])
    if not await gateway.stores.fleet.models.remove(name):
        raise no_such("model", name)
    gateway.catalog.invalidate()
    return ModelDeleted(id=name)
