"""Who is calling a route: dependencies that take the bearer key, or the page's cookie, and check its role."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from turnout.errors import Forbidden
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.tenants.caller import Caller, known, require_user
from turnout.tenants.key_rules import Role
from turnout.tenants.open_connections import name_caller

BEARER = HTTPBearer(auto_error=False, description="A key made by `turnout keys create` or POST /v1/keys.")


async def _maybe_caller(
    request: Request,
    gateway: GatewayDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
) -> Caller | None:
    # Other schemes do not count. The framework would strip the header.
    given = None if credentials is None else request.headers["authorization"].encode("latin-1")
    address = request.client.host if request.client else ""
    caller = await gateway.keys.identify(request.method, given, request.headers.raw, address)
    if caller is not None:
        name_caller(request, caller)
    return caller


MaybeCallerDep = Annotated[Caller | None, Depends(_maybe_caller)]


async def _maybe_user(caller: MaybeCallerDep) -> Caller | None:
    return None if caller is None else require_user(caller)


async def _user(caller: MaybeCallerDep) -> Caller:
    return require_user(known(caller))


async def identify_user(
    request: Request, gateway: Gateway, credentials: HTTPAuthorizationCredentials | None
) -> Caller:
    """What `UserDep` does, for a route where a key is one of several ways in."""
    return await _user(await _maybe_caller(request, gateway, credentials))


async def identify_worker_key(
    request: Request, gateway: Gateway, credentials: HTTPAuthorizationCredentials | None
) -> Caller:
    """What `WorkerDep` does, for a route where a key is one of several ways in."""
    return await _worker(await _maybe_caller(request, gateway, credentials))


async def _admin(caller: MaybeCallerDep) -> Caller:
    if known(caller).role is not Role.ADMIN:
        raise Forbidden("Only an admin's key may do this.", code="role_not_allowed")
    return known(caller)


async def _worker(caller: MaybeCallerDep) -> Caller:
    if known(caller).role is not Role.WORKER:
        raise Forbidden("Only a worker's key may do this.", code="role_not_allowed")
    return known(caller)


async def _scraper(gateway: GatewayDep, caller: MaybeCallerDep) -> None:
    """Anyone, unless `metrics_auth` is set."""
    if gateway.telemetry.metrics_auth and known(caller).role not in (Role.METRICS, Role.ADMIN):
        raise Forbidden("Only a key of the role metrics or admin may do this.", code="role_not_allowed")


MetricsDep = Annotated[None, Depends(_scraper)]
WorkerDep = Annotated[Caller, Depends(_worker)]
MaybeUserDep = Annotated[Caller | None, Depends(_maybe_user)]
UserDep = Annotated[Caller, Depends(_user)]
AdminDep = Annotated[Caller, Depends(_admin)]
