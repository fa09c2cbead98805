"""Fixtures that every suite shares: a real Redis-compatible server, stores on it, and waiting without sleeping."""

import asyncio
import functools
import itertools
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import httpx._transports.default
import pytest
import pytest_asyncio
from hypothesis import settings

from tests import ports
from tests.pace import Patience, slowness
from tests.s3 import running_s3
from turnout.run.config import DEFAULT_MODELS
from turnout.store.connection import RedisConnection
from turnout.store.object_store import open_blobs
from turnout.store.valkey import redis_url, start_valkey
from turnout.stores import Stores, stores_on
from turnout.tasks.task_rules import Priority, Task, TaskId, TenantId
from turnout.tasks.video_rules import VideoSpec

if TYPE_CHECKING:
    from tests.service import Service

pytest_plugins = ["tests.failed_list", "tests.gateways", "tests.nodeid_setter", "tests.one_torch"]
_numbers = itertools.count(1)
free_port = ports.free_port
# Threads of OpenMP wait for each other by spinning: on two cores that are busy a step of a video took 0.6 s of CPU, not 0.04.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Most tests render little or nothing: a process with the imports of gangs would cost each service seconds. test_gang_fork_server has it.
os.environ.setdefault("TURNOUT_GANG_FORK_SERVER", "false")
# How long an example takes depends on what else the machine does.
settings.register_profile("turnout", deadline=None)
settings.load_profile("turnout")
# httpx reads all certificates for each client anew: 40 ms of CPU, more than most tests need.
httpx._transports.default.create_ssl_context = functools.cache(httpx.create_ssl_context)  # pyright: ignore


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that lives as long as this test process."""
    directory = tmp_path_factory.mktemp("valkey")
    with asyncio.Runner() as runner:
        child = runner.run(start_valkey(directory, "test", directory / "log"))
        yield redis_url(directory, "test")
        runner.run(child.stop(5))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a real S3 server; its credentials are in the environment."""
    with running_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint


@pytest.fixture
async def stores(valkey: str, tmp_path: Path) -> AsyncIterator[Stores]:
    """All stores, on a private prefix of the server and in a private directory."""
    link = RedisConnection(valkey, f"t{secrets.token_hex(6)}")
    yield stores_on(link, open_blobs(str(tmp_path / "objects")), retention_s=3600)
    await link.close()


def make_task(
    tenant: str = "acme",
    model: str = "wan-tiny-t2v",
    *,
    priority: Priority = Priority.NORMAL,
    steps: int = 4,
    webhook_url: str | None = None,
    max_attempts: int = 3,
) -> Task:
    number = next(_numbers)
    spec = VideoSpec(
        f"a red ball {number}", "", 128, 128, 17, 8, steps, guidance=(3.0, 3.0), shift=5.0, seed=number
    )
    return Task(
        TaskId(f"video_{number:06d}{secrets.token_hex(4)}"),
        TenantId(tenant),
        model,
        spec,
        created_at=time.time(),
        priority=priority,
        webhook_url=webhook_url,
        max_attempts=max_attempts,
    )


async def wait_until(
    predicate: Callable[[], Awaitable[bool] | bool], what: str, timeout_s: float = 30.0
) -> None:
    """Returns as soon as the predicate holds; fails saying what was waited for, after as much longer as the machine is slower."""
    patience = Patience(timeout_s)
    while True:
        outcome = predicate()
        if outcome if isinstance(outcome, bool) else await outcome:
            return
        if patience.lost:
            pytest.fail(f"waited {patience.waited_s:.0f} s for {what}")
        # Many a predicate is an HTTP request to a service that needs the CPU for what is waited for.
        await asyncio.sleep(min(0.1, 0.02 + patience.waited_s / 20))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator["Service"]:
    """One `turnout up` for all tests that break nothing of it. A test takes a tenant of its own: `service.key_of`. People can
    log in by an issuer."""
    from tests.issuer import CLIENT, SECRET, running_issuer
    from tests.service import running_service

    settings: dict[str, Any] = {"gpu_prices": {"cpu": 0.1}, "oidc_client_secret": SECRET}
    with running_issuer(ann={"name": "Ann"}, bob={"name": "Bob"}) as issuer:
        settings["oidc"] = {"issuer": issuer.url, "client_id": CLIENT, "button": "Test issuer"}
        settings |= {"guests": {"videos": 4, "chats": 8}, "prompt_model": "smollm2", "prompt_deadline_s": 200}
        # What is seen here of a clip does not need all of its steps, which are most of the CPU.
        few = {
            name: {**said, "rules": {"steps": 6}} for name, said in DEFAULT_MODELS.items() if "family" in said
        }
        settings["models"] = {**DEFAULT_MODELS, **few}
        async with running_service(tmp_path_factory.mktemp("service"), **settings) as running:
            yield running


_TIMEOUT_S = 300  # as in pyproject.toml
SHARED = {"service", "chatting", "own_worker_aside", "furnished"}  # running services


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Services that tests share are started in one process of xdist. On a slow machine each test has more time."""
    slow = slowness()
    for item in items:
        if slow > 1:
            own = item.get_closest_marker("timeout")
            limit_s = own.args[0] if own is not None and own.args else _TIMEOUT_S
            item.add_marker(pytest.mark.timeout(limit_s * slow), append=False)
        shared = SHARED.intersection(getattr(item, "fixturenames", ()))
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared.pop()))
        elif item.path.parent.name == "fuzz":
            item.add_marker("long")


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


def pytest_configure() -> None:
    # A run in the background of a script inherits an ignored SIGINT, and so would every program under test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_FIGURE = "figure"
_figures: list[str] = []


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keeps a line that a test measured; all of them are printed at the end of the run."""

    def keep(line: str) -> None:
        request.node.user_properties.append((_FIGURE, line))

    return keep


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _figures.extend(str(value) for name, value in report.user_properties if name == _FIGURE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _figures:
        terminalreporter.section("figures")
        for line in _figures:
            terminalreporter.write_line(line)
