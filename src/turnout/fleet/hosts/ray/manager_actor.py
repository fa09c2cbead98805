"""The manager in a Ray cluster: a detached actor that Ray restarts for ever. All its state is in Redis, so a restart
loses nothing. Beside the manager's own duties it tells the autoscaling policies how the queues stand."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import ray as _ray
from ray.exceptions import RayError

from turnout.background import BackgroundLoops
from turnout.errors import Unavailable
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.hosts.ray.gang_key import GangKey
from turnout.fleet.hosts.ray.gang_scheduler import GangScheduler
from turnout.fleet.hosts.ray.leader_watch import LeaderWatch
from turnout.fleet.hosts.ray.ray_identity import ManagerTerms, namespace_of, of_gangs
from turnout.fleet.hosts.ray.ray_metrics import RayMetrics
from turnout.fleet.model_rules import Runner
from turnout.fleet.ray_rules import QueueState
from turnout.run.config import Config
from turnout.run.open_stores import open_stores
from turnout.run.run_manager import manage
from turnout.stores import Stores
from turnout.tasks.gang_tokens import GangTokens
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import drain_log, get_log, start_logging

ray = cast("Any", _ray)
log = get_log()
T = TypeVar("T")

NAME = "manager"
_LOOK_EVERY_S = 0.5
_ANSWER_S = 10.0
_SLOW_S = 60.0  # it may be on its way
_ATTENDED_S = 10.0  # `turnout up` tells of itself every few seconds
_A_BIT = 0.001  # of what Ray counts to tell machines apart
_MISSED_CHECKS = 4  # of the keeper's, before it counts as gone


@dataclass(frozen=True, slots=True)
class ManagerHealth:
    """`looked_s` is how long ago it last saw the queues; None: not yet. `attended_by` is the `turnout up` that looks after
    the deployment."""

    pid: int
    node: str
    terms: ManagerTerms
    up_s: float
    looked_s: float | None
    attended_by: str | None


class ManagerActor:
    """Its loop runs on a thread of its own; when that ends, so does the process, and Ray starts another."""

    def __init__(self, config: Config, terms: ManagerTerms, reread: Callable[[], Config] | None) -> None:
        self._config = config if reread is None else reread()
        self._terms = terms
        self._born = self._kept = time.monotonic()
        self._attended: tuple[float, str] | None = None
        self._dismissed: str | None = None
        self._looked: float | None = None
        self._queues: dict[str, QueueState] = {}
        self._gangs: dict[GangId, GangReport] = {}
        self._leaders: LeaderWatch | None = None
        self._stores: Stores | None = None
        self._stopping = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="manager", daemon=True)
        self._thread.start()

    def health(self) -> ManagerHealth:
        now = time.monotonic()
        looked_s = None if self._looked is None else now - self._looked
        node = ray.get_runtime_context().get_node_id()
        return ManagerHealth(
            os.getpid(), node, self._terms, now - self._born, looked_s, self._attended_by(now)
        )

    def keep(self, there: bool) -> None:
        """The application's keeper says that it is there, or that it leaves."""
        self._kept = time.monotonic() if there else float("-inf")

    def attend(self, who: str) -> bool:
        """A `turnout up` says that it looks after the deployment; it is told whether it should leave."""
        self._attended = (time.monotonic(), who)
        return self._dismissed == who

    def dismiss(self) -> str | None:
        """Tells the `turnout up` that looks after the deployment to leave, if there is one, and who it is."""
        self._dismissed = self._attended_by(time.monotonic())
        return self._dismissed

    def _attended_by(self, now: float) -> str | None:
        return self._attended[1] if self._attended and now - self._attended[0] < _ATTENDED_S else None

    def queues(self) -> dict[str, QueueState]:
        """How each model's queue stood a moment ago; raises when that was not seen lately."""
        if self._looked is None or time.monotonic() - self._looked > _ANSWER_S:
            raise RuntimeError("the queues have not been seen lately")
        return self._queues

    def gangs(self) -> dict[GangId, GangReport]:
        """The gangs that live, as they told of themselves a moment ago."""
        return self._gangs

    def gang_token(self, model: str, gang: GangId) -> str:
        """The right to do that gang's work, and nothing else; raises while it cannot be given."""
        return self._ask(lambda stores: _gang_token(stores, model, gang))

    def end_tokens(self) -> None:
        """The tokens of all gangs on the cluster end."""
        self._ask(lambda stores: GangKey(stores.tenants.keys).revoke())

    def tell(self, leader: Any, gang: GangId, report: GangReport | None) -> None:
        """A gang tells of itself every second, and None when it leaves. It is known and kept while no gateway answers it."""
        if self._leaders is not None:
            self._loop.call_soon_threadsafe(self._leaders.hear, leader, gang, report)

    def _ask(self, ask: Callable[[Stores], Coroutine[Any, Any, T]]) -> T:
        if self._stores is None:
            raise RuntimeError("the manager has not begun")
        return asyncio.run_coroutine_threadsafe(ask(self._stores), self._loop).result(_ANSWER_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_ANSWER_S)

    def _run(self) -> None:
        start_logging(self._config.telemetry.log_level, role="manager")
        try:
            self._loop.run_until_complete(self._work())
        except Exception:
            log.exception("manager failed")
            drain_log()
            os._exit(1)

    async def _work(self) -> None:
        async with open_stores(self._config) as stores, asyncio.TaskGroup() as group:
            self._stores = stores
            scheduler = GangScheduler(self._config, stores)
            self._leaders = LeaderWatch(stores, group)
            looking = group.create_task(self._look(scheduler, self._leaders), name="look")
            metrics = RayMetrics(stores, self._config.costs.gpu_prices)
            loops = BackgroundLoops({"ray metrics": metrics.tell, "event tail": metrics.observe})
            kept = {"serve application": self._be_kept}
            async with loops.running():
                await manage(self._config, self._stopping, Runner.RAY, lambda: scheduler.reasons, kept)
            looking.cancel()
            self._leaders.close()

    async def _be_kept(self) -> None:
        """Ends when nobody keeps it any more: `/ready` tells of loops that end."""
        while time.monotonic() - self._kept < _MISSED_CHECKS * self._config.ray.ray_health_period_s:
            await asyncio.sleep(_LOOK_EVERY_S)
        raise Unavailable(f"The Serve application {self._terms.app} is gone: no gang is started.")

    async def _look(self, scheduler: GangScheduler, leaders: LeaderWatch) -> None:
        while True:
            try:
                await leaders.write()
                self._gangs, self._queues = await scheduler.look()
                self._looked = time.monotonic()
            except Unavailable as err:
                log.warning("queues not read, trying again", error=str(err))
            await asyncio.sleep(_LOOK_EVERY_S)


async def _gang_token(stores: Stores, model: str, gang: GangId) -> str:
    tokens = GangTokens(await stores.share_links.url_secret())
    return tokens.token(await GangKey(stores.tenants.keys).right(model, gang))


def find_manager(namespace: str) -> Any | None:
    try:
        return ray.get_actor(NAME, namespace=namespace)
    except ValueError:
        return None


def terms_of(manager: Any) -> ManagerTerms | None:
    """None for a manager of another version of Turnout, which is to be replaced. Raises RayError."""
    terms = ray.get(manager.health.remote(), timeout=_SLOW_S).terms
    return terms if isinstance(terms, ManagerTerms) else None


def ensure_manager(config: Config, terms: ManagerTerms, reread: Callable[[], Config] | None) -> Any:
    """The running manager, or a new one when there is none or it has another configuration. Blocks for a moment. With `reread` it
    reads its credentials where it is: Ray hands the arguments of a named actor to whoever looks it up, and gangs do."""
    namespace = namespace_of(config)
    manager = find_manager(namespace)
    if manager is not None and terms_of(manager) != terms:
        end_manager(namespace)
        manager = None
    return manager or (
        ray.remote(ManagerActor)
        .options(
            name=NAME,
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=8,
            num_cpus=0,
            resources={f"node:{terms.machine}": _A_BIT} if terms.machine else None,
            label_selector=dict(config.ray.ray_manager_labels),
        )
        .remote(config if reread is None else of_gangs(config), terms, reread)
    )


def end_tokens(namespace: str) -> None:
    manager = find_manager(namespace)
    if manager is None:
        return
    try:
        ray.get(manager.end_tokens.remote(), timeout=_ANSWER_S)
    except RayError as err:
        log.warning("tokens of gangs are still good: revoke their key", error=str(err)[:300])


def end_manager(namespace: str) -> None:
    """Lets it drop its rights, then ends it; does nothing when there is none."""
    manager = find_manager(namespace)
    if manager is None:
        return
    with contextlib.suppress(RayError):  # it is killed next anyway
        ray.get(manager.stop.remote(), timeout=_ANSWER_S)
    ray.kill(manager)
    deadline = time.monotonic() + _ANSWER_S
    while find_manager(namespace) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
