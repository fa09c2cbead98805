"""A manager as a process runs it."""

import asyncio
from pathlib import Path

from tests.conftest import Stores, wait_until
from tests.pace import patient

from turnout.run.config import load
from turnout.run.run_manager import manage


async def test_models_of_the_configuration_are_declared_again_when_the_data_was_lost(
    stores: Stores, valkey: str, tmp_path: Path
) -> None:
    keys, client = stores.link.keys, stores.link.client
    settings = {"state_dir": str(tmp_path / "m"), "redis_url": valkey, "redis_prefix": keys.prefix}
    config = load(settings, {}, None).config
    named = {model.name for model in config.models}
    stopping = asyncio.Event()
    managing = asyncio.create_task(manage(config, stopping))

    async def declared() -> bool:
        return await stores.fleet.models.names() == named

    try:
        await wait_until(declared, "the models to be declared")
        removed = min(named)
        await stores.fleet.models.remove(removed)
        assert await stores.fleet.models.was_declared(), "what an admin removes stays removed"
        await client.delete(*await client.keys(keys.pattern()))  # as FLUSHALL does
        await wait_until(declared, "the models to be declared again")
    finally:
        stopping.set()
        await asyncio.wait_for(managing, patient(10))
