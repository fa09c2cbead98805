"""The sole owner of one engine, a server or a gang: starts it, watches it, puts it to sleep, stops it, says how it is.

What happens next is decided in `lifecycle`; here it is carried out, with a deadline on every wait.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from turnout.domain.errors import TurnoutError, Unavailable
from turnout.domain.serving import Phase, ReplicaId, ReplicaReport, ServedModel, Want
from turnout.engines.engine_servers import Launch
from turnout.observe import get_log
from turnout.ports import Command, Commands
from turnout.worker.engine_lifecycle import (
    OVER,
    Act,
    Event,
    Exited,
    Faulted,
    Holds,
    Launched,
    Life,
    Told,
    Wanted,
    admits,
    evolve,
)
from turnout.worker.exit_reasons import explain_exit
from turnout.worker.orphans import MARK, Ledger
from turnout.worker.subreaper import ask_to_kill

log = get_log()

_TAIL_BYTES = 64 * 1024  # vLLM prints the root cause far above its last words
_POLL_S = 0.05  # at first; llama.cpp is up in a moment, vLLM takes a minute
_SLOWEST_POLL_S = 0.5
_FAULTY_GRACE_S = 1.0
_WARDEN_S = 5.0


class Engine(Protocol):
    """An engine's control paths. Each call raises Unavailable when the engine does not do it."""

    async def healthy(self, launch: Launch, timeout_s: float) -> bool: ...
    async def sleep(self, launch: Launch, timeout_s: float) -> None: ...
    async def wake(self, launch: Launch, timeout_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineDeadlines:
    """How long to wait for what. A READY engine that misses `pulses` health checks in a row is taken for hung."""

    drain_s: float = 60.0
    answer_s: float = 5.0
    pulse_s: float = 10.0
    pulses: int = 6
    sleep_s: float = 120.0


async def nobody_goes_straight() -> None:
    pass


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """What a replica works with. `launch` plans its start; `loading` is held while it loads, so that two engines
    do not size themselves by the same free memory. `recalled` returns when all gateways that go straight to engines
    have heard which take requests now, and have told what they still have under way; it waits for a bounded time."""

    commands: Commands
    engine: Engine
    ledger: Ledger
    launch: Callable[[], Launch]
    loading: Callable[[], AbstractAsyncContextManager[None]]
    changed: Callable[[], None]
    patience: EngineDeadlines = EngineDeadlines()
    recalled: Callable[[], Awaitable[None]] = nobody_goes_straight


class InFlight:
    """One request under way at a replica, whose engine may want a `key`; `end` counts once, however often it is
    called."""

    __slots__ = ("_replica", "address", "key")

    def __init__(self, replica: "ReplicaOwner", address: str, key: str | None = None) -> None:
        self.address = address
        self.key = key
        self._replica: ReplicaOwner | None = replica

    def end(self) -> None:
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.tell(Told.LEFT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class ReplicaOwner:
    """`run` is its whole life; the other methods may be called at any time from the same loop, and never wait."""

    def __init__(self, id_: ReplicaId, model: ServedModel, want: Want, means: ReplicaContext) -> None:
        self.id = id_
        self.model = model
        self._means = means
        self._life = Life(want=want)
        self._launch: Launch | None = None
        self._tail = ""
        self._process: Command | None = None
        self._acts: asyncio.Queue[Act] = asyncio.Queue()
        self._idle = asyncio.Event()
        self._idle.set()
        self.closing = False  # as ordered: it should get no further work

    @property
    def phase(self) -> Phase:
        return self._life.phase

    @property
    def wanted(self) -> Want:
        return self._life.want

    @property
    def over(self) -> bool:
        return self._life.phase in OVER

    def want(self, want: Want) -> None:
        self.tell(Wanted(want))

    def enter(self) -> InFlight:
        """Lets a request in; raises Unavailable when the engine does not take any now."""
        launch = self._launch
        address = launch.address if launch else None
        if not admits(self._life) or launch is None or address is None:
            raise Unavailable(f"{self.model.name} is {self._life.phase} here", code="replica_not_ready")
        self.tell(Told.ENTERED)
        return InFlight(self, address, launch.key)

    def found(self) -> InFlight:
        """Counts a request that went straight to the engine: it is there, whatever we think of it."""
        self.tell(Told.FOUND)
        return InFlight(self, "")

    def straight(self) -> Launch | None:
        """The engine, if a request may go straight to it now."""
        return self._launch if self._launch and self._launch.port and admits(self._life) else None

    def report(self) -> ReplicaReport:
        life = self._life
        detail = life.fault if life.phase is Phase.FAILED else ""
        listens = life.phase in (Phase.READY, Phase.SLEEPING)
        address = self._launch.address if self._launch and listens else None
        return ReplicaReport(self.id, life.phase, address, life.busy, detail)

    def log_tail(self) -> str:
        """The end of what the engine printed, also after it is gone."""
        return self._process.log_tail(_TAIL_BYTES) if self._process else self._tail

    def tell(self, event: Event) -> None:
        """The only place that moves this replica's state."""
        before = self._life
        self._life, act = evolve(before, event)
        if self._life.busy:
            self._idle.clear()
        else:
            self._idle.set()
        if act is not None:
            self._acts.put_nowait(act)
        if isinstance(event, Holds) and bool(before.busy) is not bool(self._life.busy):
            self._means.changed()  # rare, unlike requests that come and go: worth telling at once
        if self._life.phase is not before.phase:
            log.info(
                "replica moved",
                replica=self.id,
                model=self.model.name,
                phase=self._life.phase,
                **({"reason": self._life.fault} if self._life.fault else {}),
            )
            self._means.changed()
        elif admits(self._life) is not admits(before):
            self._means.changed()  # about to sleep, or not any more: gateways that go straight must hear it

    async def run(self) -> None:
        """Returns when the engine is gone or has failed, with nothing of it left."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._obey(group)
        finally:
            await asyncio.shield(self._bury())

    async def _obey(self, group: asyncio.TaskGroup) -> None:
        """Carries out what the lifecycle asks for, one thing at a time, until the engine is over."""
        doing = group.create_task(self._load(), name=f"{self.id} load")
        due = group.create_task(self._acts.get(), name=f"{self.id} due")
        watch = group.create_task(self._watch(), name=f"{self.id} watch")
        ended: asyncio.Task[None] | None = None
        while not self.over:
            under_way = {task for task in (doing, due, ended) if task is not None and not task.done()}
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            if due.done():
                act, due = due.result(), group.create_task(self._acts.get(), name=f"{self.id} due")
                if act is Act.STOP:
                    doing.cancel()
                await asyncio.wait({doing})
                doing = group.create_task(self._do(act), name=f"{self.id} {act.name.lower()}")
            if ended is None and self._process is not None:
                ended = group.create_task(self._see_out(self._process), name=f"{self.id} ended")
        for task in (doing, due, watch, ended):
            if task is not None:
                task.cancel()

    async def _load(self) -> None:
        try:
            async with self._means.loading():
                launch, process = await self._start()
                await self._until_loaded(launch, process)
        except TurnoutError as err:
            self.tell(Exited(str(err)))

    async def _start(self) -> tuple[Launch, Command]:
        launch = self._means.launch()
        argv = [sys.executable, "-m", "turnout.worker.subreaper", *launch.argv]
        environ = {**launch.environ, MARK: self.id}
        starting = asyncio.ensure_future(self._means.commands.start(self.id, argv, environ))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # It cannot be called back half-way: a process that nobody owns would be left.
            self._own(launch, await starting)
            raise
        self._own(launch, process)
        return launch, process

    def _own(self, launch: Launch, process: Command) -> None:
        self._launch, self._process = launch, process
        self._means.ledger.add(self.id, process.pid, self.model.name)
        log.info("engine started", replica=self.id, model=self.model.name, pid=process.pid, port=launch.port)
        self.tell(Launched(launch.sleeps))

    async def _until_loaded(self, launch: Launch, process: Command) -> None:
        """Returns when the engine answers, or when it will not: it has ended, or is out of time."""
        began = time.monotonic()
        while process.returncode is None:
            if await self._answers(launch):
                self.tell(Told.SERVING)
                return
            spent_s = time.monotonic() - began
            if spent_s > self.model.load_timeout_s:
                self.tell(Faulted(_overdue(self.model.load_timeout_s, process.last_words())))
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), min(_SLOWEST_POLL_S, _POLL_S + spent_s / 50))

    async def _answers(self, launch: Launch) -> bool:
        if launch.ready_file is not None:
            return launch.ready_file.exists()
        return await self._means.engine.healthy(launch, self._means.patience.answer_s)

    async def _do(self, act: Act) -> None:
        launch, patience = self._launch, self._means.patience
        if launch is None or self._process is None:
            self.tell(Exited("it was called off before it began"))
            return
        try:
            match act:
                case Act.SLEEP:
                    await self._means.recalled()
                    if self._life.busy:
                        self.tell(Told.STAYED)
                        return
                    await self._means.engine.sleep(launch, patience.sleep_s)
                    self.tell(Told.ASLEEP)
                case Act.WAKE:
                    await self._means.engine.wake(launch, self.model.load_timeout_s)
                    self.tell(Told.SERVING)
                case Act.STOP:
                    await self._stop(launch, self._process)
        except Unavailable as err:
            self.tell(Faulted(str(err)))

    async def _stop(self, launch: Launch, process: Command) -> None:
        """Waits for requests under way, asks the engine to leave, and kills what does not."""
        grace_s = _FAULTY_GRACE_S
        if not self._life.fault:
            grace_s = launch.grace_s
        if not self._life.fault and not launch.drains:
            await self._means.recalled()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), self._means.patience.drain_s)
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace_s)
        await end_at_once(process)

    async def _see_out(self, process: Command) -> None:
        code = await process.wait()
        self._means.ledger.remove(process.pid)
        self.tell(Exited(explain_exit(code, process.log_tail(_TAIL_BYTES))))

    async def _watch(self) -> None:
        """Notices an engine that neither answers nor ends."""
        patience, missed = self._means.patience, 0
        while True:
            await asyncio.sleep(patience.pulse_s)
            if self.phase is not Phase.READY or self._launch is None:
                missed = 0
                continue
            answers = await self._answers(self._launch)
            missed = 0 if answers else missed + 1
            if missed >= patience.pulses:
                self.tell(Faulted(f"it no longer answers: it missed {missed} health checks in a row"))

    async def _bury(self) -> None:
        """Leaves nothing behind, also when `run` was cancelled."""
        if self._process is not None:
            await end_at_once(self._process)
            self._means.ledger.remove(self._process.pid)
            self._tail = self._process.log_tail(_TAIL_BYTES)
            self._process = None
        if self._launch is not None and self._launch.ready_file is not None:
            self._launch.ready_file.unlink(missing_ok=True)
        self.tell(Exited("its worker ended"))


async def end_at_once(process: Command) -> None:
    """The subreaper kills all that it answers for, wherever it went; should it hang, its group is killed."""
    if process.returncode is None:
        ask_to_kill(process.pid)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _WARDEN_S)
    process.kill()
    await process.wait()


def _overdue(timeout_s: float, last_words: str) -> str:
    spent = f"it did not answer within {timeout_s:g} s (load_timeout_s)"
    return f"{spent}; its last words: {last_words}" if last_words else spent
