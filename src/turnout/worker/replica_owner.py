"""The only owner of one engine, a server or a gang: starts it, watches it, puts it to sleep, stops it and reports its state.

`lifecycle_rules` decide what happens next. Here it is carried out, with a deadline on every wait.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Self

from turnout.engines.servers.engine_servers import Launch
from turnout.errors import TurnoutError, Unavailable
from turnout.fleet.model_rules import Model
from turnout.fleet.replica_rules import EngineFigures, Phase, ReplicaId, ReplicaReport, Want
from turnout.processes.process import Commands
from turnout.telemetry.log import get_log
from turnout.tenants.gpu_time_rules import GpuState
from turnout.worker.engine_process import Engine, EngineProcess, command_line
from turnout.worker.exit_reason_rules import explain_exit
from turnout.worker.lifecycle_rules import (
    ENDED_PHASES,
    Act,
    EngineState,
    Event,
    Exited,
    Faulted,
    Holds,
    Launched,
    Notice,
    OrderRefused,
    Wanted,
    admits,
    evolve,
    held_as,
)
from turnout.worker.order_rules import ORDER_REFUSED
from turnout.worker.orphans import Ledger

log = get_log()

_POLL_S = 0.05  # at first: llama.cpp is up in a moment, vLLM takes a minute
_SLOWEST_POLL_S = 0.5
_FAULTY_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class EngineDeadlines:
    """A ready engine that misses `max_missed` health checks in a row counts as hung: whoever sent it a request waits no longer
    than 40 s for that."""

    drain_s: float = 60.0
    answer_s: float = 5.0
    health_every_s: float = 5.0
    max_missed: int = 4
    sleep_s: float = 120.0


async def no_direct_gateways() -> None:
    pass


def _not_counted(state: GpuState | None) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """`launch` plans the start. `loading` is held while the engine loads, so that two engines do not size themselves by the
    same free memory. `wait_acknowledged` returns when all gateways that send requests directly have heard which engines take
    requests now, and have reported what they have in flight; it waits for a bounded time. `holds` counts what its GPUs do."""

    commands: Commands
    engine: Engine
    ledger: Ledger
    launch: Callable[[], Launch]
    loading: Callable[[], AbstractAsyncContextManager[None]]
    changed: Callable[[], None]
    deadlines: EngineDeadlines = EngineDeadlines()
    wait_acknowledged: Callable[[], Awaitable[None]] = no_direct_gateways
    holds: Callable[[GpuState | None], None] = _not_counted


class InFlight:
    """One request in flight at a replica, whose engine may need a `key`. `end` counts once, however often it is called."""

    __slots__ = ("_replica", "address", "key")

    def __init__(self, replica: "ReplicaOwner", address: str, key: str | None = None) -> None:
        self.address = address
        self.key = key
        self._replica: ReplicaOwner | None = replica

    def end(self) -> None:
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.apply(Notice.ENDED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class ReplicaOwner:
    """`run` lasts as long as the engine. The other methods may be called at any time from the same loop, and never wait."""

    def __init__(
        self,
        id_: ReplicaId,
        model: Model,
        want: Want,
        context: ReplicaContext,
        gpus: tuple[int, ...] = (),
    ) -> None:
        self.id = id_
        self.model = model
        self._gpus = gpus
        self._context = context
        self._state = EngineState(want=want)
        self._engine: EngineProcess | None = None  # the last that was started
        self._loaded = ""  # how far it has loaded, in words
        self._figures: EngineFigures | None = None  # as it told them at the last health check
        self._acts: asyncio.Queue[Act] = asyncio.Queue()
        self._idle = asyncio.Event()
        self._idle.set()
        self.closing = False  # as ordered: it should get no further work

    @property
    def phase(self) -> Phase:
        return self._state.phase

    @property
    def wanted(self) -> Want:
        return self._state.want

    def want(self, want: Want) -> None:
        self.apply(Wanted(want))

    def admit(self) -> InFlight:
        """Counts a request as in flight. Raises Unavailable if the engine takes none now."""
        launch = self._engine.launch if self._engine else None
        address = launch.address if launch else None
        if not admits(self._state) or launch is None or address is None:
            raise Unavailable(f"{self.model.name} is {self._state.phase} here", code="replica_not_ready")
        self.apply(Notice.ADMITTED)
        return InFlight(self, address, launch.key)

    def count_direct(self) -> InFlight:
        """Counts a request that a gateway has sent directly to the engine, whatever the engine's state."""
        self.apply(Notice.DIRECT)
        return InFlight(self, "")

    def direct_launch(self) -> Launch | None:
        """The engine, if gateways may send requests directly to it now."""
        launch = self._engine.launch if self._engine and admits(self._state) else None
        return launch if launch and launch.port else None

    def report(self) -> ReplicaReport:
        state = self._state
        detail = {Phase.FAILED: state.fault, Phase.STARTING: self._loaded}.get(state.phase) or ""
        listens = state.phase in (Phase.READY, Phase.SLEEPING)
        address = self._engine.launch.address if self._engine and listens else None
        return ReplicaReport(
            self.id,
            state.phase,
            address,
            state.busy,
            detail,
            self.model.name,
            self._gpus,
            state.refused,
            self._figures if state.phase is Phase.READY else None,
        )

    def log_tail(self) -> str:
        """The end of the engine's output, also after it has exited."""
        return self._engine.log_tail() if self._engine else ""

    def apply(self, event: Event) -> None:
        """The only place that changes this replica's state."""
        before = self._state
        self._state, act = evolve(before, event)
        if self._state.busy:
            self._idle.clear()
        else:
            self._idle.set()
        if act is not None:
            self._acts.put_nowait(act)
        turned = bool(before.busy) is not bool(self._state.busy)
        if turned or self._state.phase is not before.phase:
            self._context.holds(held_as(self._state))
        if turned and (self.closing or isinstance(event, Holds)):
            # Rare, unlike a change of the count, and somebody may wait for the room: worth a report at once.
            self._context.changed()
        if self._state.phase is not before.phase:
            log.info(
                "replica changed phase",
                replica=self.id,
                model=self.model.name,
                phase=self._state.phase,
                **({"reason": self._state.fault} if self._state.fault else {}),
            )
            self._context.changed()
        elif admits(self._state) is not admits(before):
            self._context.changed()  # gateways that send requests directly must hear of it

    async def run(self) -> None:
        """Returns when the engine is gone or has failed, and no process of it is left."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._carry_out(group)
        finally:
            await asyncio.shield(self._clean_up())

    async def _carry_out(self, group: asyncio.TaskGroup) -> None:
        """Does what the lifecycle decides, one thing at a time, until the engine has ended."""
        work = group.create_task(self._load(), name=f"{self.id} load")
        next_act = group.create_task(self._acts.get(), name=f"{self.id} next")
        watch = group.create_task(self._watch_health(), name=f"{self.id} watch")
        exited: asyncio.Task[None] | None = None
        while self.phase not in ENDED_PHASES:
            under_way = {task for task in (work, next_act, exited) if task is not None and not task.done()}
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            if next_act.done():
                act = next_act.result()
                next_act = group.create_task(self._acts.get(), name=f"{self.id} next")
                if act is Act.STOP:
                    work.cancel()
                await asyncio.wait({work})
                work = group.create_task(self._do(act), name=f"{self.id} {act.name.lower()}")
            if exited is None and self._engine is not None:
                exited = group.create_task(self._watch_exit(self._engine), name=f"{self.id} exit")
        for task in (work, next_act, watch, exited):
            if task is not None:
                task.cancel()

    async def _load(self) -> None:
        try:
            async with self._context.loading():
                await self._wait_loaded(await self._start())
        except TurnoutError as err:
            refused = err.code == ORDER_REFUSED
            self.apply(OrderRefused(str(err)) if refused else Exited(str(err)))

    async def _start(self) -> EngineProcess:
        context, launch = self._context, self._context.launch()
        starting = asyncio.ensure_future(context.commands.start(self.id, *command_line(launch, self.id)))
        try:
            await asyncio.shield(starting)
        finally:
            # Also when it was cancelled: a start cannot be undone half-way, and would leave a process that nobody owns.
            process = await starting
            engine = self._engine = EngineProcess(launch, process, context.engine)
            context.ledger.add(self.id, process.pid, self.model.name)
            log.info(
                "engine started", replica=self.id, model=self.model.name, pid=process.pid, port=launch.port
            )
            self.apply(Launched(launch.sleeps))
        return engine

    async def _wait_loaded(self, engine: EngineProcess) -> None:
        """Returns when the engine answers, has exited, or is out of time."""
        began = time.monotonic()
        while engine.process.returncode is None:
            if await engine.answers(self._context.deadlines.answer_s):
                self.apply(Notice.SERVING)
                return
            loaded = engine.loaded()
            if loaded != self._loaded:
                self._loaded = loaded
                self._context.changed()
            spent_s = time.monotonic() - began
            if spent_s > self.model.scaling.load_timeout_s:
                self.apply(Faulted(_overdue(self.model.scaling.load_timeout_s, engine.process.last_words())))
                return
            await engine.wait_exit(min(_SLOWEST_POLL_S, _POLL_S + spent_s / 50))

    async def _do(self, act: Act) -> None:
        engine = self._engine
        if engine is None:
            self.apply(Exited("it was called off before it began"))
            return
        try:
            match act:
                case Act.SLEEP:
                    await self._context.wait_acknowledged()
                    if self._state.busy:
                        self.apply(Notice.STAYED_AWAKE)
                        return
                    await self._context.engine.sleep(engine.launch, self._context.deadlines.sleep_s)
                    self.apply(Notice.ASLEEP)
                case Act.WAKE:
                    await self._context.engine.wake(engine.launch, self.model.scaling.load_timeout_s)
                    self.apply(Notice.SERVING)
                case Act.STOP:
                    await self._stop(engine)
        except Unavailable as err:
            self.apply(Faulted(str(err)))

    async def _stop(self, engine: EngineProcess) -> None:
        """Waits for requests in flight, asks the engine to leave, and kills what does not."""
        if self._state.fault:
            return await engine.stop(_FAULTY_GRACE_S)
        if not engine.launch.drains:
            await self._context.wait_acknowledged()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._context.deadlines.drain_s):
                    await self._idle.wait()
        await engine.stop(engine.launch.grace_s)

    async def _watch_exit(self, engine: EngineProcess) -> None:
        code = await engine.process.wait()
        self._context.ledger.remove(engine.process.pid)
        self.apply(Exited(explain_exit(code, engine.log_tail())))

    async def _watch_health(self) -> None:
        """Notices an engine that neither answers nor exits, and asks one that answers for its figures."""
        deadlines, missed = self._context.deadlines, 0
        while True:
            await asyncio.sleep(deadlines.health_every_s)
            if self.phase is not Phase.READY or self._engine is None:
                missed, self._figures = 0, None
                continue
            lives = await self._engine.lives(deadlines.answer_s)
            missed = 0 if lives else missed + 1
            self._figures = await self._engine.figures(deadlines.answer_s) if lives else None
            if missed >= deadlines.max_missed:
                self.apply(Faulted(f"it no longer answers: it missed {missed} health checks in a row"))

    async def _clean_up(self) -> None:
        """Leaves no process and no file behind, also when `run` was cancelled."""
        if self._engine is not None:
            await self._engine.end()
            self._context.ledger.remove(self._engine.process.pid)
        self.apply(Exited("its worker ended"))


def _overdue(timeout_s: float, last_words: str) -> str:
    spent = f"it did not answer within {timeout_s:g} s (load_timeout_s)"
    return f"{spent}; its last words: {last_words}" if last_words else spent
