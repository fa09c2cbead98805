"""`turnout backup` and `turnout restore`: a cold copy of what matters in Redis."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.options import Common, with_config
from turnout.errors import Misconfigured

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The copy; only its owner can read it.")]
RedisOption = Annotated[str | None, typer.Option("--redis-url", help="A Redis of your own.")]


def register(app: typer.Typer) -> None:
    app.command()(with_config(backup))
    app.command()(with_config(restore))


def backup(common: Common, file: FileArgument, redis_url: RedisOption = None) -> None:
    """Copy keys, models, tasks, events and usage from Redis into one file.

    Videos are in the object store and are not copied. Copy while nothing is submitted or rendered.
    """
    from turnout.run.open_stores import open_connection
    from turnout.store.data_copy import Copied, back_up

    config = common.load(redis_url=redis_url).config

    async def work() -> Copied:
        async with open_connection(config) as link:
            return await back_up(link, file)

    try:
        copied = asyncio.run(work())
    except OSError as err:
        raise Misconfigured(f"cannot write {file}: {err.strerror}") from err
    print(f"{copied.keys} keys are in {file}.")
    if copied.changed:
        typer.echo(
            "warning: tasks moved meanwhile; one may be half in the copy. Copy again while all is quiet.",
            err=True,
        )


def restore(
    common: Common,
    file: FileArgument,
    redis_url: RedisOption = None,
    force: Annotated[bool, typer.Option("--force", help="Delete the data that is there first.")] = False,
) -> None:
    """Bring back what `turnout backup` has copied. Running gateways and managers begin anew with it."""
    from turnout.run.open_stores import open_connection
    from turnout.store import data_copy
    from turnout.tenants.key_rules import OWN_NAMES

    config = common.load(redis_url=redis_url).config

    async def work() -> int:
        async with open_connection(config) as link:
            return await data_copy.restore(link, file, over=force, own_keys=OWN_NAMES)

    try:
        count = asyncio.run(work())
    except OSError as err:
        raise Misconfigured(f"cannot read {file}: {err.strerror}") from err
    print(f"{count} keys restored.")
