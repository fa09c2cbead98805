"""Services that several files share. Each starts five processes: 5 s of CPU."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.service import Service, running_service
from tests.worker.conftest import FAKE_ENGINE
from tests.workers import set_aside_its_own_worker


def llamacpp(**fields: Any) -> dict[str, Any]:
    return {
        "engine": "llamacpp",
        "weights": "builtin:smollm2",
        "needs": {"memory_bytes": 400 * 2**20},
        **fields,
    }


def one_seat(*arguments: str) -> dict[str, Any]:
    """A model that answers one request at a time."""
    return {
        "engine": "command",
        "command": [sys.executable, str(FAKE_ENGINE), "{port}", *arguments],
        "concurrency": 1,
        "model_name": "fake",
        "memory_bytes": 100_000_000,
    }


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chatting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Its `chat` leaves soon, and its parts are killed."""
    models = {
        "chat": llamacpp(idle_s=3.0, concurrency=8),
        "fair": one_seat(),
        "busy": one_seat("--busy-once"),
    }
    async with running_service(tmp_path_factory.mktemp("chat"), models=models) as service:
        yield service


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def own_worker_aside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """All replicas are on workers that joined; its gateway is killed."""
    models = {"chat": llamacpp(idle_s=300.0, concurrency=8)}
    async with running_service(tmp_path_factory.mktemp("joined"), models=models) as service:
        await set_aside_its_own_worker(service)
        yield service
