"""Puts the gateway together: routes, wrappers, and the one loop that it runs (the tail of events).

A gateway keeps no state of its own that matters: any number of them may run side by side.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from turnout import __version__
from turnout.domain.tasks import Finished, Task
from turnout.gateway import problems
from turnout.gateway.auth import KeyRing
from turnout.gateway.catalog import Catalog
from turnout.gateway.chat.chat_limits import ChatShares
from turnout.gateway.chat.chat_metrics import ChatMetrics
from turnout.gateway.chat.chat_usage import ChatUsage
from turnout.gateway.chat.routes_feed import RoutesFeed
from turnout.gateway.chat.switchboard import Switchboard
from turnout.gateway.middleware import BodyLimit, SafeHeaders
from turnout.gateway.models import model_list, models_admin
from turnout.gateway.operations import health, keys_admin, metrics, usage_routes
from turnout.gateway.operations.metrics import Measured, Metrics
from turnout.gateway.parts import Parts
from turnout.gateway.videos import event_streams, video_files, video_routes
from turnout.gateway.videos.live_events import Live
from turnout.gateway.videos.submission import Submissions
from turnout.gateway.videos.time_estimates import TimeEstimates
from turnout.gateway.workers import tunnel_route, worker_routes
from turnout.ports import Recorded

__all__ = ["Parts", "create_app", "stop_streams"]


def create_app(parts: Parts) -> FastAPI:
    pace = TimeEstimates()
    catalog = Catalog(parts.registry, [model.name for model in parts.config.served], time.monotonic)
    measures = Metrics(parts.now)

    def learn(recorded: Recorded, task: Task | None) -> None:
        if isinstance(recorded.event, Finished) and task is not None:
            pace.learn(task)

    live = Live(parts.tasks, (measures.saw, learn))
    board = Switchboard(time.monotonic)
    name = f"gw-{secrets.token_hex(6)}"
    lines = RoutesFeed(parts.registry, board, parts.tunnels, parts.shortcuts, name, time.monotonic)
    allowances = ChatShares(parts.quotas, name, parts.config.chat_limits, time.monotonic)

    book = ChatUsage(parts.usage, name, parts.now)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group:
            tails = {
                group.create_task(live.run(), name="event tail"),
                group.create_task(lines.run(), name="lines"),
                group.create_task(parts.shortcuts.run(name), name="shortcuts"),
                group.create_task(allowances.run(), name="allowances"),
                group.create_task(book.run(), name="usage"),
            }
            try:
                yield
            finally:
                live.stop()
                # Up to Python 3.11 `wait_for`, which the Redis client uses, can lose a cancellation (gh-86296).
                while pending := {tail for tail in tails if not tail.done()}:
                    for tail in pending:
                        tail.cancel()
                    await asyncio.wait(pending, timeout=0.1)

    # The interactive pages would load scripts from elsewhere; /openapi.json is enough for any tool.
    app = FastAPI(title="Turnout", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.parts = parts
    app.state.keys = KeyRing(parts.keys, parts.now)
    app.state.catalog = catalog
    app.state.submissions = Submissions(parts, catalog, board)
    app.state.live = live
    app.state.board = board
    app.state.lines = lines
    app.state.allowances = allowances
    app.state.usage_book = book
    app.state.chat_metrics = ChatMetrics(measures.registry, board.demand)
    app.state.pace = pace
    app.state.metrics = measures
    problems.install(app)
    for module in (
        video_routes,
        video_files,
        event_streams,
        models_admin,
        model_list,
        keys_admin,
        usage_routes,
        worker_routes,
        tunnel_route,
        health,
        metrics,
    ):
        app.include_router(module.router)
    # The last one added sees a request first.
    app.add_middleware(problems.NoSurprises)
    app.add_middleware(BodyLimit, max_bytes=parts.config.max_body_bytes)
    app.add_middleware(SafeHeaders)
    app.add_middleware(Measured, metrics=measures)
    app.openapi = lambda: _document(app)
    return app


def stop_streams(app: FastAPI) -> None:
    """Ends all live streams; call it when the server begins to shut down, so that it need not wait for them."""
    cast(Live, app.state.live).stop()


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop(
                    "422", None
                )  # what does not fit is answered with 400, in one shape
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema
