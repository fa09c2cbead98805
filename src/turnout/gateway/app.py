"""The gateway's HTTP application: its routes, what wraps them, and the loops that run for as long as it does."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from turnout import __version__
from turnout.chat import conversation_routes
from turnout.fleet import join_code_routes, model_list, pull_routes, tunnel_route, worker_routes
from turnout.fleet import model_routes as models_admin
from turnout.gateway import problems
from turnout.gateway.gateway import Gateway
from turnout.gateway.middleware import BodyLimit, StandardHeaders, UnexpectedErrors
from turnout.gateway.page import docs_routes, page_routes
from turnout.people import (
    account_routes,
    guest_routes,
    invite_routes,
    login_routes,
    people_routes,
    site_routes,
)
from turnout.relay.framing import CORS_EXPOSED
from turnout.tasks import (
    dead_record_routes,
    estimate_routes,
    event_streams,
    gang_objects,
    gang_routes,
    image_routes,
    preset_routes,
    prompt_routes,
    queue_routes,
    share_routes,
    video_files,
    video_routes,
    webhook_secret_routes,
)
from turnout.telemetry import health, history_routes, log_routes, metrics_route
from turnout.telemetry.metrics import RequestMetrics
from turnout.tenants import audit_routes, budget_routes, session_routes, usage_routes
from turnout.tenants import key_routes as keys_admin
from turnout.tenants.open_connections import EndsWithCaller

_ROUTERS = (
    video_routes.router,
    video_files.router,
    image_routes.router,
    prompt_routes.router,
    conversation_routes.router,
    preset_routes.router,
    queue_routes.router,
    dead_record_routes.router,
    share_routes.router,
    event_streams.router,
    models_admin.router,
    model_list.router,
    pull_routes.router,
    estimate_routes.router,
    keys_admin.router,
    audit_routes.router,
    usage_routes.router,
    budget_routes.router,
    webhook_secret_routes.router,
    history_routes.router,
    log_routes.router,
    join_code_routes.router,
    worker_routes.router,
    gang_routes.router,
    gang_objects.router,
    tunnel_route.router,
    health.router,
    metrics_route.router,
    session_routes.router,
    session_routes.own_sessions,
    account_routes.router,
    people_routes.router,
    invite_routes.router,
    login_routes.router,
    guest_routes.router,
    site_routes.router,
    page_routes.router,
    docs_routes.router,
)


def create_app(gateway: Gateway) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with gateway.background.running():
            try:
                yield
            finally:
                gateway.videos.stop()
                await gateway.videos.submissions.images.aclose()

    # The framework's own pages would load scripts from elsewhere: /docs is ours.
    app = FastAPI(
        title="Turnout",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # Traces and metrics are ours: the framework's would tell URLs with their tokens.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.router.redirect_slashes = False  # a redirect would go wherever the Host header says
    app.state.gateway = gateway
    problems.install(app, gateway.keys.throttle)
    for router in _ROUTERS:
        app.include_router(router)
    # The last one added sees a request first.
    app.add_middleware(EndsWithCaller, callers=gateway.revocations.callers)
    app.add_middleware(UnexpectedErrors)
    settings = gateway.settings
    app.add_middleware(
        BodyLimit, max_bytes=settings.max_body_bytes, max_bytes_in_all=settings.max_bodies_bytes
    )
    if origins := settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=CORS_EXPOSED,
        )
    # Preflights are answered by what is inside of this.
    app.add_middleware(StandardHeaders, tracer=gateway.telemetry.tracer)
    app.add_middleware(RequestMetrics, figures=gateway.telemetry.request_figures)
    app.openapi = lambda: _document(app)
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in document["paths"].values():
            for operation in path.values():
                # What does not fit is answered with 400, in one shape.
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema
