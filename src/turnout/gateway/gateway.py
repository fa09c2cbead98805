"""The gateway as one object: what handlers need, in parts by noun.

`run/build_gateway` puts it together. A gateway keeps no state of its own that matters: any number of them may run side by side.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from turnout.background import BackgroundLoops
from turnout.chat.chat_limits import ChatShares
from turnout.chat.chat_metrics import ChatMetrics
from turnout.chat.chat_usage import ChatUsage
from turnout.chat.routes_feed import RoutesFeed
from turnout.chat.switchboard import Switchboard
from turnout.fleet.catalog import Catalog
from turnout.fleet.gang_list import GangList
from turnout.fleet.pull_runner import ModelPulls
from turnout.gateway.gateway_settings import GatewaySettings
from turnout.people.oidc_flow import OidcFlow
from turnout.people.site import Site
from turnout.relay import Relay
from turnout.store.outbound import Outbound
from turnout.stores import Stores
from turnout.tasks.arrivals import Arrivals
from turnout.tasks.gang_access import GangAccess
from turnout.tasks.label_store import LabelStore
from turnout.tasks.live_events import LiveEvents
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.submission import Submissions
from turnout.tasks.task_settings import TaskSettings
from turnout.tasks.time_estimates import TimeEstimates
from turnout.tasks.wait_reasons import WaitReasons
from turnout.telemetry.history import History
from turnout.telemetry.metrics import Metrics, RequestFigures
from turnout.telemetry.readiness import ReadinessCheck
from turnout.telemetry.request_tracer import RequestTracer
from turnout.tenants.budget_checks import BudgetChecks
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.revocation import Revocations
from turnout.tenants.tenant_settings import CostSettings, GuestSettings
from turnout.worker.tunnel.gateway_end import GatewayTunnels


@dataclass(frozen=True, slots=True)
class VideoParts:
    settings: TaskSettings
    live: LiveEvents
    estimates: TimeEstimates
    wait_reasons: WaitReasons
    submissions: Submissions
    urls: UrlSigner
    gangs: GangAccess
    arrivals: Arrivals
    labels: LabelStore

    def stop(self) -> None:
        """Ends what is held open, so that a server can stop without waiting for its clients."""
        self.live.stop()
        self.arrivals.stop()


@dataclass(frozen=True, slots=True)
class ChatParts:
    switchboard: Switchboard
    routes: RoutesFeed
    shares: ChatShares
    usage: ChatUsage
    metrics: ChatMetrics
    relay: Relay
    keep_conversations: int


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """`prober` calls the addresses that workers say they have. `pulls` fetches models onto this machine; None where its worker
    would not find them."""

    gangs: GangList
    prober: Outbound
    tunnels: GatewayTunnels
    allow_registered_commands: bool
    pulls: ModelPulls | None = None


@dataclass(frozen=True, slots=True)
class PeopleParts:
    """`oidc` logs people in by the issuer, `guests` says what those without an account may; None where that is not switched on.
    `site` is what all are told of whoever runs the service."""

    oidc: OidcFlow | None
    guests: GuestSettings | None
    site: Site


@dataclass(frozen=True, slots=True)
class TelemetryParts:
    """`state_dir` is where this machine's logs lie; `log_reading` lets one request at a time read them."""

    request_figures: RequestFigures
    metrics: Metrics
    readiness: ReadinessCheck
    history: History
    tracer: RequestTracer | None
    metrics_auth: bool
    state_dir: Path
    log_reading: asyncio.Lock


@dataclass(frozen=True, slots=True)
class Gateway:
    """`name` is new for each process. `background` is everything that runs for as long as the gateway does."""

    name: str
    settings: GatewaySettings
    stores: Stores
    now: Callable[[], float]
    background: BackgroundLoops
    catalog: Catalog
    keys: KeyRing
    revocations: Revocations
    budgets: BudgetChecks
    costs: CostSettings
    videos: VideoParts
    chat: ChatParts
    workers: WorkerParts
    people: PeopleParts
    telemetry: TelemetryParts


async def gateway_of(conn: HTTPConnection) -> Gateway:
    """The only reader of `app.state`."""
    return cast(Gateway, conn.app.state.gateway)


GatewayDep = Annotated[Gateway, Depends(gateway_of)]
