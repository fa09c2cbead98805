"""A whole Turnout for a test: `turnout up` as a user runs it, on a free port and a temporary directory."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.conftest import wait_until
from tests.pace import patient


class Service:
    """`parts` finds the running processes by role; roles are the commands' names, and "redis". `python` has the Turnout that is run."""

    def __init__(
        self,
        state_dir: Path,
        settings: dict[str, Any],
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        python: Path = Path(sys.executable),
    ) -> None:
        self.state_dir = state_dir
        self.config = state_dir.parent / "turnout.yaml"
        self.config.write_text(
            yaml.safe_dump({"port": 0, "state_dir": str(state_dir), **settings}, sort_keys=False)
        )
        self.url = ""
        self.api_key = ""
        self.output = state_dir.parent / "up.log"
        self._arguments = ["up", "--config", str(self.config), *arguments]
        # Ranks import engines of the tests.
        self._environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **(environ or {})}
        self._python = python
        self._process: asyncio.subprocess.Process | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    def client(self, token: str | None = None, timeout: float = 60) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token or self.api_key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout)

    def key_of(self, tenant: str = "", role: str = "user") -> str:
        """A new key; without a tenant, of a new one."""
        asked = {"tenant": tenant or f"t-{secrets.token_hex(4)}", "role": role}
        made = httpx.post(f"{self.url}/v1/keys", json=asked, headers=self.headers, timeout=30)
        return str(made.raise_for_status().json()["token"])

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    async def start(self, within_s: float = 60.0) -> None:
        (self.state_dir / "service.json").unlink(missing_ok=True)
        with self.output.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                self._python, "-m", "turnout", *self._arguments, stdout=out, stderr=out, env=self._environ
            )
        await wait_until(self._answers, f"turnout up to answer: {self.output.read_text()[-500:]}", within_s)

    async def _answers(self) -> bool:
        assert self._process
        if self._process.returncode is not None:
            pytest.fail(f"turnout up ended: {self.output.read_text()[-2000:]}")
        try:
            found = json.loads((self.state_dir / "service.json").read_text())
            self.url, self.api_key = found["url"], found["api_key"]
            async with httpx.AsyncClient(timeout=5) as client:
                return (await client.get(f"{self.url}/ready")).status_code == 200
        except (OSError, ValueError, httpx.HTTPError):
            return False

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        return self._process.returncode if self._process else None

    async def stop(self) -> int:
        """Ctrl-C, and nothing may be left."""
        assert self._process
        family = psutil.Process(self.pid).children(recursive=True)
        self._process.send_signal(signal.SIGINT)
        code = await asyncio.wait_for(self._process.wait(), patient(60))
        left = [p for p in family if lives(p)]
        assert not left, f"left behind: {left}"
        return code

    async def kill(self) -> None:
        """Without warning, and everything goes with it."""
        assert self._process
        family = psutil.Process(self.pid).children(recursive=True)
        self._process.kill()
        await self._process.wait()
        await wait_until(lambda: not any(map(lives, family)), "all processes to die with turnout up")

    def parts(self, role: str, model: str = "") -> list[psutil.Process]:
        """Of a gang or an engine also by its model."""
        if role == "rank":
            return self.ranks()
        found: list[psutil.Process] = []
        for process in psutil.Process(self.pid).children(recursive=True):
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            is_redis = bool(words) and words[0].endswith("valkey-server")
            is_role = "turnout" in words and words[words.index("turnout") + 1 :][:1] == [role]
            if "turnout.worker.subreaper" in words:
                continue  # it has the words of what it watches among its own
            if (is_redis if role == "redis" else is_role) and (not model or model in words):
                found.append(process)
        return without_forks(found)

    def ranks(self, model: str = "") -> list[psutil.Process]:
        """The ranks are what the gang's fork server has forked."""
        found: list[psutil.Process] = []
        for gang in self.parts("gang", model):
            for server in _children(gang):
                found += _children(server)
        return sorted(found, key=lambda p: p.pid)

    def engines(self) -> list[psutil.Process]:
        """Those of chat models, not the processes that watch them."""
        found: list[psutil.Process] = []
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if is_engine(process):
                    found.append(process)
        return without_forks(found)

    def log(self) -> str:
        logs = sorted((self.state_dir / "logs").glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in logs)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def without_forks(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Until a child runs a program of its own it has its parent's words; so has the one that writes a server's file anew."""
    ids, found = {process.pid for process in processes}, list[psutil.Process]()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.ppid() not in ids:
                found.append(process)
    return found


def is_engine(process: psutil.Process) -> bool:
    words = process.cmdline()
    return "turnout.engines.servers.llamacpp" in words and "turnout.worker.subreaper" not in words


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


@asynccontextmanager
async def running_service(
    tmp_path: Path, environ: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[Service]:
    service = Service(tmp_path / "state", settings, environ=environ)
    await service.start()
    try:
        yield service
    except BaseException:
        print(service.output.read_text()[-3000:], service.log(), file=sys.stderr)
        raise
    finally:
        if service.running:
            await service.stop()
