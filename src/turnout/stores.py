"""What lasts: one store for each kind of record, all on one connection to Redis, and the objects."""

import asyncio
from dataclasses import dataclass

from turnout.chat.quota_accounts import Quotas
from turnout.fleet.fleet_store import FleetStatus, ManagerState
from turnout.fleet.gang_reports import GangReportStore
from turnout.fleet.model_store import ModelStore
from turnout.fleet.route_table import DemandReports, RouteTable
from turnout.fleet.worker_store import OrderStore, WorkerStore
from turnout.store.connection import RedisConnection
from turnout.store.data_health import DataHealth
from turnout.store.dead_records import DeadRecords
from turnout.store.mutex import Mutex
from turnout.store.object_store import Blobs
from turnout.tasks.backlog import Backlog
from turnout.tasks.share_store import ShareStore
from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_traces import TaskTraces
from turnout.tasks.webhook_outbox import Outbox
from turnout.tasks.webhook_secret_store import WebhookSecretStore
from turnout.telemetry.history_store import HistoryStore
from turnout.telemetry.otlp import OtlpSpans
from turnout.tenants.audit_log import AuditLog
from turnout.tenants.budget_store import BudgetStore
from turnout.tenants.key_store import KeyStore
from turnout.tenants.session_store import SessionStore
from turnout.tenants.usage_log import UsageLog


@dataclass(frozen=True, slots=True)
class Stores:
    """One adapter for each port, all on one connection; whoever makes them closes them in the end. `spans` is None unless
    traces are on."""

    link: RedisConnection
    blobs: Blobs
    tasks: TaskLog
    events: TaskEvents
    queue: TaskQueue
    backlog: Backlog
    gangs: GangReportStore
    keys: KeyStore
    sessions: SessionStore
    dead_records: DeadRecords
    history: HistoryStore
    audit: AuditLog
    shares: ShareStore
    quotas: Quotas
    usage: UsageLog
    budgets: BudgetStore
    outbox: Outbox
    webhook_secrets: WebhookSecretStore
    mutex: Mutex
    models: ModelStore
    workers: WorkerStore
    orders: OrderStore
    routes: RouteTable
    demand: DemandReports
    manager_state: ManagerState
    fleet_status: FleetStatus
    data: DataHealth
    spans: OtlpSpans | None = None

    async def close(self) -> None:
        await self.link.close()
        if self.spans is not None:
            await asyncio.to_thread(self.spans.close)


def stores_on(
    link: RedisConnection, blobs: Blobs, retention_s: float, spans: OtlpSpans | None = None
) -> Stores:
    events = TaskEvents(link)
    tasks = TaskLog(link, retention_s, TaskTraces(events, spans) if spans is not None else None)
    return Stores(
        link=link,
        blobs=blobs,
        tasks=tasks,
        events=events,
        queue=TaskQueue(link, tasks),
        backlog=Backlog(link),
        gangs=GangReportStore(link),
        keys=KeyStore(link),
        sessions=SessionStore(link),
        dead_records=DeadRecords(link),
        history=HistoryStore(link),
        audit=AuditLog(link),
        shares=ShareStore(link),
        quotas=Quotas(link),
        usage=UsageLog(link),
        budgets=BudgetStore(link),
        outbox=Outbox(link, tasks),
        webhook_secrets=WebhookSecretStore(link),
        mutex=Mutex(link),
        models=ModelStore(link),
        workers=WorkerStore(link),
        orders=OrderStore(link),
        routes=RouteTable(link),
        demand=DemandReports(link),
        manager_state=ManagerState(link),
        fleet_status=FleetStatus(link),
        data=DataHealth(link),
        spans=spans,
    )
