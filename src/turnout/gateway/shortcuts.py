"""Runs the routes that are asked most often past the framework's router, which documents them.

To find the route, to solve its dependencies and to open contexts for them took the framework a quarter of a submission's CPU.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.domain.errors import TurnoutError
from turnout.gateway.problems import respond_to, respond_to_http

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class Shortcuts:
    """`endpoints` by method and path. They take the request alone, and are routes of the app, too."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[tuple[str, str], Endpoint]) -> None:
        self._app = app
        self._endpoints = {
            (method, path): (endpoint, Route(path, endpoint, methods=[method]))
            for (method, path), endpoint in endpoints.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._endpoints.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if found is None:
            return await self._app(scope, receive, send)
        endpoint, scope["route"] = found  # metrics are counted by the route
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except TurnoutError as err:
            response = respond_to(err)
        except HTTPException as err:
            response = respond_to_http(request, err)
        await response(scope, receive, send)
