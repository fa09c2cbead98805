"""Pulls models on the machine of `turnout up`, one after the other, each by `turnout models pull` in a process of its own: it is
stopped when somebody cancels it, and goes on where it was when a gateway is started again. Files that are here stay."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from turnout.errors import InvalidRequest, Unavailable
from turnout.fleet.pull_rules import ModelPull, PullFailure, PullState, ended, next_pull
from turnout.fleet.pull_store import PullStore
from turnout.processes.child import Child, LocalLauncher
from turnout.store.mutex import Mutex
from turnout.telemetry.log import get_log

_LOOK_S = 1.0
_MUTEX, _MUTEX_S = "pulls", 10.0
_GRACE_S = 5.0
_CHECK_S = 120.0
_CHECKS_AT_ONCE = 2

log = get_log()


@dataclass(frozen=True, slots=True)
class ModelPulls:
    """`state_dir` is this machine's: what lies under its `models` is found by its worker."""

    store: PullStore
    mutex: Mutex
    state_dir: Path
    owner: str
    now: Callable[[], float]
    checking: asyncio.Semaphore

    async def run(self) -> None:
        try:
            while True:
                # Of two gateways on one machine one pulls; one that was killed lets go when its right has lapsed.
                if await self.mutex.hold(_MUTEX, self.owner, _MUTEX_S):
                    pull = next_pull(await self.store.all())
                    if pull is not None:
                        await self._pull(pull)
                await asyncio.sleep(_LOOK_S)
        finally:
            with suppress(Unavailable):
                await self.mutex.drop(_MUTEX, self.owner)

    async def _pull(self, pull: ModelPull) -> None:
        running = replace(pull, state=PullState.RUNNING)
        if not await self.store.put(running, pull.state):
            return
        launcher = LocalLauncher(self.state_dir / "logs")
        child = await launcher.start(pull.id, ["models", "pull", *self._words(pull), "--json"])
        log.info("model pull started", pull=pull.id, repo=pull.repo, hub=pull.hub, pid=child.pid)
        try:
            await self._follow(running, child)
        finally:
            if child.returncode is None:
                await child.stop(_GRACE_S)

    async def _follow(self, pull: ModelPull, child: Child) -> None:
        while child.returncode is None:
            await asyncio.sleep(_LOOK_S)
            if not await self.mutex.hold(_MUTEX, self.owner, _MUTEX_S):
                return  # another pulls it; two would write the same files
            told = _progress(child.last_words())
            pull = replace(pull, bytes=told[0], of=told[1]) if told is not None else pull
            if not await self.store.put(pull, PullState.RUNNING):
                log.info("model pull cancelled", pull=pull.id)
                return
        failure = None
        if child.returncode:
            failure = _failure(await asyncio.to_thread(_last_line, child.log))
        over = ended(pull, failure, self.now())
        if await self.store.put(over, PullState.RUNNING):
            log.info("model pull ended", pull=pull.id, repo=pull.repo, state=over.state, reason=over.reason)

    async def check(self, pull: ModelPull) -> dict[str, Any]:
        """What `turnout models check` says of a model that is not here yet. Raises InvalidRequest, Unavailable."""
        async with self.checking:
            child = await LocalLauncher(self.state_dir / "logs").start(
                f"check-{token_hex(8)}", ["models", "check", *self._words(pull), "--json"]
            )
            try:
                async with asyncio.timeout(_CHECK_S):
                    code = await child.wait()
            except TimeoutError as err:
                raise Unavailable("The hub took too long.", code="hub_unavailable") from err
            finally:
                if child.returncode is None:
                    await child.stop(_GRACE_S)
                said = await asyncio.to_thread(_last_line, child.log)
                child.log.unlink(missing_ok=True)
        if code != 0:
            failure = _failure(said)
            raise InvalidRequest(failure.message[:300], "repo", failure.code or "model_refused")
        found = _verdict(said)
        if found is None:
            raise Unavailable("The check ended without a verdict.", code="hub_unavailable")
        return found

    def _words(self, pull: ModelPull) -> list[str]:
        included = [word for pattern in pull.include for word in ("--include", pattern)]
        return [pull.repo, "--from", pull.hub, *included, "--state-dir", str(self.state_dir)]


def checks() -> asyncio.Semaphore:
    return asyncio.Semaphore(_CHECKS_AT_ONCE)


def _verdict(line: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        told: object = json.loads(line)
        return cast("dict[str, Any]", told) if isinstance(told, dict) else None
    return None


def _progress(line: str) -> tuple[int, int] | None:
    with suppress(ValueError, KeyError, TypeError):
        told = json.loads(line)
        return int(told["bytes"]), int(told["of"])
    return None


def _failure(line: str) -> PullFailure:
    """As `--json` tells an error; a process that was killed tells none."""
    with suppress(ValueError, KeyError, TypeError):
        told = json.loads(line)["error"]
        return PullFailure(str(told["message"]), str(told["code"] or ""))
    return PullFailure(line if line and _progress(line) is None else "it ended")


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = path.read_text(errors="replace")[-65_536:].strip().splitlines()
        return lines[-1] if lines else ""
    return ""
