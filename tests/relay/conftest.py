"""The relay's suite runs on uvloop, as the product does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import uvloop
from tests.relay.kit import Stand, settings_of, standing

from turnout.relay import RelaySettings


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing(RelaySettings()) as stand:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        yield stand


@pytest.fixture
async def make_stand() -> AsyncIterator[Callable[..., Any]]:
    """Stands with settings of one's own."""
    async with AsyncExitStack() as stack:

        async def make(**settings: Any) -> Stand:
            return await stack.enter_async_context(standing(settings_of(**settings)))

        yield make
