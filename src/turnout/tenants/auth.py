"""Who is calling a route: dependencies that take the bearer key, or the page's cookie, and check its role."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from turnout.errors import Forbidden
from turnout.gateway.gateway import Gateway, gateway_of
from turnout.tenants.caller import Caller, known, require_user
from turnout.tenants.key_rules import Role
from turnout.tenants.open_connections import name_caller

_BEARER = HTTPBearer(description="A key made by `turnout keys create` or POST /v1/keys.")


class ShownKey(SecurityBase):
    """A dependency that does nothing but show in the OpenAPI document that a route takes a bearer key."""

    def __init__(self) -> None:
        self.model = _BEARER
        self.scheme_name = "HTTPBearer"

    async def __call__(self, request: Request) -> Caller | None:
        return None


class CallerBy(ShownKey):
    """A dependency: the caller, if `admit` lets it in. It is one and not a chain of them: what the framework does for each
    takes longer than to recognise a key."""

    def __init__(self, admit: Callable[[Gateway, Caller | None], Caller | None]) -> None:
        super().__init__()
        self._admit = admit

    async def __call__(self, request: Request) -> Caller | None:
        gateway = await gateway_of(request)
        return self._admit(gateway, await _identify(request, gateway))


async def _identify(request: Request, gateway: Gateway) -> Caller | None:
    authorization = request.headers.get("authorization", "")
    scheme, _, token = authorization.partition(" ")
    # Other schemes do not count.
    given = authorization.encode("latin-1") if scheme.lower() == "bearer" and token.strip() else None
    method, headers = request.method, request.headers.raw
    caller = gateway.keys.recall(method, given, headers)
    if caller is None:
        address = request.client.host if request.client else ""
        caller = await gateway.keys.identify(method, given, headers, address)
    if caller is not None:
        name_caller(request, caller)
    return caller


async def identify_user(request: Request, gateway: Gateway) -> Caller:
    """What `UserDep` does, for a route where a key is one of several ways in."""
    return require_user(known(await _identify(request, gateway)))


async def identify_worker_key(request: Request, gateway: Gateway) -> Caller:
    """What `WorkerDep` does, for a route where a key is one of several ways in."""
    return _of_role(Role.WORKER, "a worker's", await _identify(request, gateway))


def _of_role(role: Role, whose: str, caller: Caller | None) -> Caller:
    if known(caller).role is not role:
        raise Forbidden(f"Only {whose} key may do this.", code="role_not_allowed")
    return known(caller)


def _with_role(role: Role, whose: str) -> CallerBy:
    return CallerBy(lambda _, caller: _of_role(role, whose, caller))


def _scraper(gateway: Gateway, caller: Caller | None) -> Caller | None:
    """Anyone, unless `metrics_auth` is set."""
    if gateway.telemetry.metrics_auth and known(caller).role not in (Role.METRICS, Role.ADMIN):
        raise Forbidden("Only a key of the role metrics or admin may do this.", code="role_not_allowed")
    return caller


MetricsDep = Annotated[Caller | None, Depends(CallerBy(_scraper))]
WorkerDep = Annotated[Caller, Depends(_with_role(Role.WORKER, "a worker's"))]
MaybeUserDep = Annotated[
    Caller | None, Depends(CallerBy(lambda _, caller: None if caller is None else require_user(caller)))
]
UserDep = Annotated[Caller, Depends(CallerBy(lambda _, caller: require_user(known(caller))))]
AdminDep = Annotated[Caller, Depends(_with_role(Role.ADMIN, "an admin's"))]
