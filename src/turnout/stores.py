"""What lasts: one store for each kind of record, all on one connection to Redis, and the objects."""

import asyncio
from dataclasses import dataclass

from turnout.chat.conversation_store import ConversationStore
from turnout.chat.quota_accounts import Quotas
from turnout.fleet.fleet_store import FleetStatus, ManagerState
from turnout.fleet.gang_reports import GangReportStore
from turnout.fleet.join_code_store import JoinCodeStore
from turnout.fleet.model_store import ModelStore
from turnout.fleet.route_table import DemandReports, RouteTable
from turnout.fleet.worker_store import OrderStore, WorkerStore
from turnout.people.invite_store import InviteStore
from turnout.people.login_flow_store import LoginFlowStore
from turnout.people.person_store import PersonStore
from turnout.store.connection import RedisConnection
from turnout.store.data_health import DataHealth
from turnout.store.dead_records import DeadRecords
from turnout.store.mutex import Mutex
from turnout.store.object_store import Blobs
from turnout.tasks.backlog import Backlog
from turnout.tasks.preset_store import PresetStore
from turnout.tasks.share_store import ShareStore
from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_traces import TaskTraces
from turnout.tasks.webhook_outbox import Outbox
from turnout.tasks.webhook_secret_store import WebhookSecretStore
from turnout.telemetry.otlp import OtlpSpans
from turnout.tenants.allowance_store import AllowanceStore
from turnout.tenants.audit_log import AuditLog
from turnout.tenants.budget_store import BudgetStore
from turnout.tenants.key_store import KeyStore
from turnout.tenants.session_store import SessionStore
from turnout.tenants.usage_log import UsageLog


@dataclass(frozen=True, slots=True)
class FleetStores:
    models: ModelStore
    workers: WorkerStore
    orders: OrderStore
    routes: RouteTable
    demand: DemandReports
    manager_state: ManagerState
    status: FleetStatus
    gangs: GangReportStore
    join_codes: JoinCodeStore


@dataclass(frozen=True, slots=True)
class TenantStores:
    keys: KeyStore
    sessions: SessionStore
    audit: AuditLog
    quotas: Quotas
    usage: UsageLog
    budgets: BudgetStore
    people: PersonStore
    invites: InviteStore
    login_flows: LoginFlowStore
    allowances: AllowanceStore
    conversations: ConversationStore
    presets: PresetStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Whoever makes them closes them in the end. `spans` is None unless traces are on."""

    link: RedisConnection
    blobs: Blobs
    tasks: TaskLog
    events: TaskEvents
    queue: TaskQueue
    backlog: Backlog
    share_links: ShareStore
    outbox: Outbox
    webhook_secrets: WebhookSecretStore
    fleet: FleetStores
    tenants: TenantStores
    dead_records: DeadRecords
    mutex: Mutex
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
        share_links=ShareStore(link),
        outbox=Outbox(link, tasks),
        webhook_secrets=WebhookSecretStore(link),
        fleet=FleetStores(
            ModelStore(link),
            WorkerStore(link),
            OrderStore(link),
            RouteTable(link),
            DemandReports(link),
            ManagerState(link),
            FleetStatus(link),
            GangReportStore(link),
            JoinCodeStore(link),
        ),
        tenants=TenantStores(
            KeyStore(link),
            SessionStore(link),
            AuditLog(link),
            Quotas(link),
            UsageLog(link),
            BudgetStore(link),
            PersonStore(link),
            InviteStore(link),
            LoginFlowStore(link),
            AllowanceStore(link),
            ConversationStore(link, blobs),
            PresetStore(link),
        ),
        dead_records=DeadRecords(link),
        mutex=Mutex(link),
        data=DataHealth(link),
        spans=spans,
    )
