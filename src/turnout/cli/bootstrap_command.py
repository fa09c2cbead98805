"""`turnout bootstrap`: what the chart's Job runs first on Kubernetes."""

import asyncio
from typing import Annotated

import typer

from turnout.cli.options import Common, with_config


def register(app: typer.Typer) -> None:
    app.command(hidden=True)(with_config(bootstrap))


def bootstrap(
    common: Common,
    secret: Annotated[str, typer.Option("--secret", help="The Secret in this pod's namespace.")],
    own_redis: Annotated[
        bool, typer.Option("--own-redis", help="Redis takes the password that is made here.")
    ] = False,
    deadline: Annotated[float, typer.Option("--deadline", help="Seconds to wait for Redis.")] = 600.0,
) -> None:
    """Fill a Secret of Kubernetes with what is missing there, and add its keys to a Redis that has none."""
    from turnout.fleet.hosts.kubernetes.cluster_secret import ClusterSecret
    from turnout.run.bootstrap import bootstrap as run
    from turnout.telemetry.log import drain_log, start_logging

    config = common.load().config
    start_logging(config.telemetry.log_level, role="bootstrap")
    try:
        asyncio.run(run(config, ClusterSecret(secret), deadline, own_redis=own_redis))
    finally:
        drain_log()
