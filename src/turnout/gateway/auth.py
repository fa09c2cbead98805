"""Who is calling a route: dependencies that take the bearer key and check its role."""

from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from turnout.domain.errors import Forbidden, Unauthorized
from turnout.domain.keys import Key, Role
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.key_ring import require_user

_bearer = HTTPBearer(auto_error=False, description="A key made by `turnout keys create` or POST /v1/keys.")


async def _caller(
    gateway: GatewayDep, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Key:
    if credentials is None:
        raise Unauthorized("Give an API key: 'Authorization: Bearer tk-…'.", code="missing_api_key")
    return await gateway.keys.identify(credentials.credentials)


async def _user(key: Annotated[Key, Depends(_caller)]) -> Key:
    return require_user(key)


async def _admin(key: Annotated[Key, Depends(_caller)]) -> Key:
    if key.role is not Role.ADMIN:
        raise Forbidden("Only an admin's key may do this.", code="role_not_allowed")
    return key


async def _worker(key: Annotated[Key, Depends(_caller)]) -> Key:
    if key.role is not Role.WORKER:
        raise Forbidden("Only a worker's key may do this.", code="role_not_allowed")
    return key


async def _scraper(
    gateway: GatewayDep, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    """Anyone, unless `metrics_auth` is set."""
    if gateway.config.metrics_auth:
        key = await _caller(gateway, credentials)
        if key.role is not Role.METRICS and key.role is not Role.ADMIN:
            raise Forbidden("Only a key of the role metrics or admin may do this.", code="role_not_allowed")


MetricsDep = Annotated[None, Depends(_scraper)]
WorkerDep = Annotated[Key, Depends(_worker)]
UserDep = Annotated[Key, Depends(_user)]
AdminDep = Annotated[Key, Depends(_admin)]
