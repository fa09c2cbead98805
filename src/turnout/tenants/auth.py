"""Who is calling a route: dependencies that take the bearer key, or the page's cookie, and check its role."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from turnout.errors import Forbidden, Unauthorized
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.middleware import TENANT
from turnout.tenants.key_ring import bearer, require_user
from turnout.tenants.key_rules import Key, Role

BEARER = HTTPBearer(auto_error=False, description="A key made by `turnout keys create` or POST /v1/keys.")


async def _maybe_caller(
    request: Request,
    gateway: GatewayDep,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
) -> Key | None:
    """A request with a key is judged by that alone."""
    given = None
    if credentials is not None:
        given = request.headers["authorization"].encode("latin-1")  # the framework would strip it
    shown = gateway.keys.authorization(given, request.method, request.headers.raw)
    if shown is None:
        return None
    address = request.client.host if request.client and given is not None else ""
    try:
        return await gateway.keys.identify(bearer(shown), address)
    except Unauthorized:
        if given is not None:
            raise
        return None  # the session is over, and browsers keep the cookie all the same


async def _caller(request: Request, key: Annotated[Key | None, Depends(_maybe_caller)]) -> Key:
    if key is None:
        raise Unauthorized("Give an API key: 'Authorization: Bearer tk-…'.", code="missing_api_key")
    setattr(request.state, TENANT, key.tenant)
    return key


async def _maybe_user(key: Annotated[Key | None, Depends(_maybe_caller)]) -> Key | None:
    return None if key is None else require_user(key)


async def _user(key: Annotated[Key, Depends(_caller)]) -> Key:
    return require_user(key)


async def _admin(key: Annotated[Key, Depends(_caller)]) -> Key:
    if key.role is not Role.ADMIN:
        raise Forbidden("Only an admin's key may do this.", code="role_not_allowed")
    return key


async def identify_user(
    request: Request, gateway: Gateway, credentials: HTTPAuthorizationCredentials | None
) -> Key:
    """What `UserDep` does, for a route where a key is one of several ways in."""
    return require_user(await _caller(request, await _maybe_caller(request, gateway, credentials)))


async def _worker(key: Annotated[Key, Depends(_caller)]) -> Key:
    if key.role is not Role.WORKER:
        raise Forbidden("Only a worker's key may do this.", code="role_not_allowed")
    return key


async def _scraper(
    request: Request, gateway: GatewayDep, caller: Annotated[Key | None, Depends(_maybe_caller)]
) -> None:
    """Anyone, unless `metrics_auth` is set."""
    if gateway.config.telemetry.metrics_auth:
        key = await _caller(request, caller)
        if key.role is not Role.METRICS and key.role is not Role.ADMIN:
            raise Forbidden("Only a key of the role metrics or admin may do this.", code="role_not_allowed")


MetricsDep = Annotated[None, Depends(_scraper)]
WorkerDep = Annotated[Key, Depends(_worker)]
MaybeUserDep = Annotated[Key | None, Depends(_maybe_user)]
UserDep = Annotated[Key, Depends(_user)]
AdminDep = Annotated[Key, Depends(_admin)]
