"""Presets over HTTP: the operator's, and one's own, which follow a person to every browser."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import TypeAdapter

from turnout.errors import Conflict, no_such
from turnout.gateway.bodies import json_body, read_json_value
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.preset_json import PresetDeleted, PresetList, PresetShown
from turnout.tasks.preset_rules import MAX_PRESETS, PRESET_NAME, PresetGiven
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import owner_of
from turnout.validation import validated

router = APIRouter(tags=["videos"], responses=documented(400, 401, 403, 500, 503))

_GIVEN = TypeAdapter(PresetGiven)
NamePath = Annotated[str, Path(pattern=PRESET_NAME)]


@router.get("/v1/presets", summary="Settings under a name: the operator's, and my own")
async def index(caller: UserDep, gateway: GatewayDep) -> PresetList:
    own = await gateway.stores.tenants.presets.of(owner_of(caller))
    given = gateway.videos.settings.presets
    return PresetList(
        data=[
            *(PresetShown(name=name, source="operator", settings=one) for name, one in given.items()),
            *(PresetShown(name=name, source="own", settings=one) for name, one in sorted(own.items())),
        ]
    )


@router.put(
    "/v1/presets/{name}",
    responses=documented(409, 413, 415),
    openapi_extra=json_body(_GIVEN),
    summary="Keep settings under a name",
)
async def put(name: NamePath, request: Request, caller: UserDep, gateway: GatewayDep) -> PresetShown:
    """What was under this name of mine before is gone."""
    preset = validated(_GIVEN, await read_json_value(request))
    if not await gateway.stores.tenants.presets.put(owner_of(caller), name, preset):
        raise Conflict(f"You have {MAX_PRESETS} presets: delete one.", "name", "too_many_presets")
    return PresetShown(name=name, source="own", settings=preset)


@router.delete("/v1/presets/{name}", responses=documented(404), summary="Delete a preset of mine")
async def remove(name: NamePath, caller: UserDep, gateway: GatewayDep) -> PresetDeleted:
    if not await gateway.stores.tenants.presets.remove(owner_of(caller), name):
        raise no_such("preset", name, "name")
    return PresetDeleted(name=name)
