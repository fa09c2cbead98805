"""One chaos run: tasks by many clients while faults are caused one after the other, and the account of all of it."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.chaos.chatting import ChatAccount, Chatting
from tests.chaos.clients import FRAMES, TERMINAL, Clients, Watched, digest, frames_in
from tests.chaos.cluster import WAN, Cluster, running_cluster, wait_for
from tests.chaos.faults import Fault, stacks
from tests.chaos.gpu_record import GpuRecord
from tests.nat_box import Box

_SPECS = (
    20  # so many different videos at most; every task is one of them, so that its bytes are known beforehand
)
_AT_ONCE = 24
_BOOKED_S = 4.0  # until GPU time is booked
_APART_S = 3.0  # how long after the first fault of a stack the others come, at most, for each
_RECOVER_S = 240.0  # how long after a fault nothing may come to its end


@dataclass(frozen=True, slots=True)
class Plan:
    """`faults` are caused in this order, over and over, until all tasks have ended; after `limit_s` no task is begun. Up to
    `stacked` faults come at once; before the next ones as many tasks end as `between` says, at least and at most. Meanwhile
    `chats` clients talk to a chat model. `video` is the declaration of the model that renders."""

    tasks: int
    faults: tuple[Fault, ...]
    seed: int
    clocks: bool
    limit_s: float
    between: tuple[int, int] = (2, 5)
    stacked: int = 1
    chats: int = 0
    video: Mapping[str, Any] = field(default_factory=lambda: WAN)


@dataclass
class Report:
    """The account of one run. What must be empty or zero is in `wrong`."""

    seed: int
    tasks: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    resumed: int = 0
    deaths: int = 0
    restarts: int = 0
    equal: int = 0
    left: int = 0  # an upload that was under way at the end may leave its object to the retention's sweep
    connections: int = 0
    events: int = 0
    gap_s: float = 0.0
    gap_fault: str = ""
    gpu_time: str = ""
    stacked: int = 0
    chats: ChatAccount = field(default_factory=ChatAccount)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def found(self, what: str, where: str) -> None:
        self.wrong.setdefault(what, []).append(where)

    def table(self) -> str:
        def count(*kinds: str) -> int:
            return sum(len(self.wrong.get(kind, ())) for kind in kinds)

        rows = [
            ("tasks", f"{self.tasks} in {self.seconds:.0f} s"),
            ("completed", str(self.completed)),
            ("took more than one attempt", f"{self.resumed} ({self.deaths} attempts died)"),
            ("bytes equal to an undisturbed run", f"{self.equal} of {self.completed}"),
            (
                "tasks lost, doubled, failed",
                f"{count('task lost')}, {count('task doubled')}, {count('task failed')}",
            ),
            ("events seen", f"{self.events} over {self.connections} connections"),
            (
                "events lost, doubled, misordered",
                f"{count('event lost')}, {count('event doubled')}, {count('event misordered')}",
            ),
            ("other findings", str(sum(map(len, self.wrong.values())) - count(*_COUNTED))),
            ("longest time in which no task ended", f"{self.gap_s:.0f} s ({self.gap_fault})"),
            ("checkpoints left to the sweep", str(self.left)),
            *self.chats.rows(),
            ("GPU time", self.gpu_time),
            ("parts restarted", str(self.restarts)),
            ("faults", f"{self.faults.total()}, {self.stacked} of them during another one"),
            *((f"  {name}", str(n)) for name, n in sorted(self.faults.items())),
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"chaos, seed {self.seed}", *(f"{name:{width}}  {value}" for name, value in rows)]
        for what, where in self.wrong.items():
            lines += [f"WRONG {what} ×{len(where)}:", *(f"  {one}" for one in where[:5])]
        return "\n".join(lines)


_COUNTED = ("task lost", "task doubled", "task failed", "event lost", "event doubled", "event misordered")


class Chaos:
    def __init__(self, plan: Plan, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._cluster = cluster
        self._say = say
        self._clients = Clients(cluster)
        self._specs = min(_SPECS, max(1, plan.tasks // 5))
        self._watched: list[Watched] = []
        self._began = time.monotonic()
        self._done = asyncio.Event()
        self._ends: list[tuple[float, str]] = []
        self._fault = "none"
        self.report = Report(plan.seed)
        self._chatting = Chatting(cluster, self.report.chats)

    async def run(self) -> Report:
        record = GpuRecord(self._cluster, await self._clients.usage())
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(record.watch(), name="GPU record")
            await self._run()
            await asyncio.sleep(_BOOKED_S)
            watching.cancel()
        await self._check_gpu_time(record)
        return self.report

    async def _run(self) -> None:
        references = await self._references()
        self._began = time.monotonic()
        self._ends.append((self._began, "none"))
        async with asyncio.TaskGroup() as group:
            faults = group.create_task(self._cause_faults(), name="faults")
            for number in range(self._plan.chats):
                group.create_task(self._chatting.talk(number, self._done), name=f"chat {number}")
            async with asyncio.TaskGroup() as clients:
                waiting = asyncio.Semaphore(_AT_ONCE)
                for number in range(self._plan.tasks):
                    await waiting.acquire()
                    if time.monotonic() - self._began > self._plan.limit_s:
                        self._say(f"the time is up: {number} of {self._plan.tasks} tasks were begun")
                        break
                    watched = Watched(number % self._specs, f"chaos-{number}")
                    self._watched.append(watched)
                    clients.create_task(self._one(watched, waiting), name=watched.key)
            self._done.set()
            await faults
        self.report.seconds = time.monotonic() - self._began
        await self._account(references)

    async def _references(self) -> dict[int, str]:
        """The digest of each video, rendered before anything is disturbed."""
        first = [Watched(spec, f"undisturbed-{spec}") for spec in range(self._specs)]
        await asyncio.gather(*(self._clients.live_through(w, 300) for w in first))
        self._say(f"{len(first)} videos rendered undisturbed")
        return {w.spec: digest(await self._clients.download(w.id)) for w in first}

    async def _one(self, watched: Watched, waiting: asyncio.Semaphore) -> None:
        try:
            await self._clients.live_through(watched)
        except TimeoutError as err:
            self.report.found("task lost", str(err))
        finally:
            self._ends.append((time.monotonic(), self._fault))
            waiting.release()

    def _ended(self) -> int:
        return len(self._ends) - 1

    async def _cause_faults(self) -> None:
        """One stack after the other, each at a random moment, once tasks come to an end again after the one before."""
        chance = random.Random(self._plan.seed)
        for stack in stacks(self._plan.faults, self._plan.stacked, chance):
            if any(fault.needs_running for fault in stack):
                await wait_for(
                    self._denoised_or_done, f"a task to be denoised, after {self._fault}", _RECOVER_S
                )
            await asyncio.sleep(chance.uniform(0, 0.5))
            if self._done.is_set():
                return
            self._fault = " + ".join(fault.name for fault in stack)
            self._say(f"{self._ended()} of {self._plan.tasks} ended; {self._fault}")
            self._chatting.faults = stack
            async with asyncio.TaskGroup() as group:
                for number, fault in enumerate(stack):
                    group.create_task(self._cause(fault, number * chance.uniform(0, _APART_S), chance))
            self.report.stacked += len(stack) - 1
            enough = self._ended() + chance.randint(*self._plan.between)
            await wait_for(
                lambda enough=enough: self._ended() >= enough or self._done.is_set(),
                f"tasks to end after {self._fault}",
                _RECOVER_S,
            )

    async def _cause(self, fault: Fault, after_s: float, chance: random.Random) -> None:
        await asyncio.sleep(after_s)
        with contextlib.suppress(psutil.NoSuchProcess):  # another fault killed it a moment ago
            await fault.cause(self._cluster, chance)
        self.report.faults[fault.name] += 1

    async def _denoised_or_done(self) -> bool:
        return self._done.is_set() or await self._clients.something_is_denoised()

    async def _account(self, references: dict[int, str]) -> None:
        report = self.report
        report.tasks = len(self._watched)
        report.restarts = self._cluster.restarts
        gaps = [
            (after - before, fault)
            for (before, _), (after, fault) in zip(self._ends, self._ends[1:], strict=False)
        ]
        report.gap_s, report.gap_fault = max(gaps, default=(0.0, "none"))
        for watched in self._watched:
            report.connections += watched.connections
            report.events += len(watched.events)
            for odd in watched.odd:
                report.found("answer a client should not get", odd)
            if watched.ended:
                await self._check(watched, references[watched.spec])
        for odd in report.chats.odd:
            report.found("answer a chat should not get", odd)
        mine = {w.id for w in self._watched}
        known = await self._clients.ids()
        others = len(known) - len(references)
        for missing in mine - set(known):
            report.found("task lost", f"{missing} is not in the list")
        if others > len(mine):
            report.found("task doubled", f"{len(mine)} tasks were submitted, the service has {others}")
        used = sum(row["videos"] for row in (await self._clients.usage())["data"])
        if used != report.completed + len(references):
            report.found(
                "usage", f"{used} videos were counted, {report.completed + len(references)} completed"
            )
        await self._check_leftovers()

    async def _check(self, watched: Watched, reference: str) -> None:
        report = self.report
        truth = await self._clients.story(watched.id)
        seen, told = [e["id"] for e in watched.events], [e["id"] for e in truth]
        for event, count in Counter(seen).items():
            if count > 1:
                report.found("event doubled", f"{watched.id} {event} ×{count}")
        for event in set(told) ^ set(seen):
            report.found("event lost", f"{watched.id} {event} {'seen' if event in seen else 'not seen'}")
        if seen != told and set(seen) == set(told):
            report.found("event misordered", f"{watched.id} saw {seen}, not {told}")
        if out_of_order := disorder(truth):
            report.found("event misordered", f"{watched.id}: {out_of_order}")
        if sum(e["type"] in TERMINAL for e in truth) != 1 or truth[-1]["type"] not in TERMINAL:
            report.found("event misordered", f"{watched.id} ended {[e['type'] for e in truth][-3:]}")
        deaths = sum(e["type"] == "video.requeued" for e in truth)
        report.deaths += deaths
        report.resumed += deaths > 0
        if truth[-1]["type"] != "video.completed":
            report.found("task failed", f"{watched.id} {truth[-1]}")
            return
        report.completed += 1
        data = await self._clients.download(watched.id)
        if digest(data) == reference and frames_in(data) == FRAMES:
            report.equal += 1
        else:
            report.found("other bytes", watched.id)

    async def _check_gpu_time(self, record: GpuRecord) -> None:
        usage = await self._clients.usage()
        for disagreement in record.disagreements(usage):
            self.report.found("GPU time", disagreement)
        states = usage["total"]["gpu_seconds"]
        self.report.gpu_time = f"{', '.join(f'{s} {n:.1f} s' for s, n in states.items())}; {record}"

    async def _check_leftovers(self) -> None:
        from turnout.store.object_store import open_blobs

        blobs = open_blobs(
            str(self._cluster.config.objects.blobs), self._cluster.config.objects.blobs_endpoint
        )
        left = [b.key async for b in blobs.list("tasks/") if "/checkpoint-" in b.key]
        self.report.left = len(left)


def disorder(story: list[dict[str, Any]]) -> str:
    """What is wrong with the order of a task's events: progress goes forward within an attempt, attempts follow one another."""
    attempt, step = 0, -1
    for event in story:
        now = event.get("attempt") or attempt
        if now < attempt:
            return f"attempt {now} after {attempt}"
        if now > attempt:
            attempt, step = now, -1
        if event["type"] == "video.progress":
            if event.get("step", step) < step:
                return f"step {event['step']} after {step} in attempt {attempt}"
            step = event.get("step", step)
    return ""


async def run_chaos(
    plan: Plan, home: Path, s3_endpoint: str, say: Callable[[str], None], box: Box | None = None
) -> Report:
    running = running_cluster(home, s3_endpoint, plan.video, clocks=plan.clocks, chat=plan.chats > 0, box=box)
    async with running as cluster:
        say(f"two gateways, managers and workers run ({', '.join(cluster.urls)})")
        return await Chaos(plan, cluster, say).run()
