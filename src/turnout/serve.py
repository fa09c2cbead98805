"""The Serve application for `serve run turnout.serve:app`, `serve deploy` and a KubeRay RayService.

Arguments: `config`, a configuration file that every node has (default: ./turnout.yaml and TURNOUT_* variables; secrets are needed
only where the manager and the gateway run); `ingress`, true to serve the gateway through Serve's own HTTP server, too; `digest`, any text: Serve builds the application
again when it has changed (`turnout ray app` prints a file with all of them).
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.cluster_reach import refuse_local_stores, refuse_without_gateway
from turnout.run import config as settings

_ARGUMENTS = {"config", "digest", "ingress"}


def app(arguments: Mapping[str, object]) -> Any:
    """Builds the application, on whatever node Serve does that. Raises Misconfigured."""
    unknown = sorted(arguments.keys() - _ARGUMENTS)
    if unknown:
        raise Misconfigured(f"there is no argument {unknown[0]!r}; known: {', '.join(sorted(_ARGUMENTS))}")
    ingress = _truth(arguments.get("ingress", False))
    file = Path(str(arguments["config"])) if arguments.get("config") else None
    config = settings.load({}, os.environ, file).config
    if not ingress:
        refuse_without_gateway(config)
    from turnout.fleet.hosts.ray.serve_app import build_app

    return build_app(config, ingress=ingress, reread=partial(read_config, file))


def read_config(file: Path | None) -> settings.Config:
    """Where the manager or the gateway is."""
    config = settings.load({}, os.environ, file).config
    refuse_local_stores(config)
    return config


def _truth(given: object) -> bool:
    """`serve run` gives text, a Serve file what YAML reads."""
    match given:
        case bool():
            return given
        case str() if given.lower() in ("true", "false"):
            return given.lower() == "true"
        case _:
            raise Misconfigured(f"ingress is true or false, not {given!r}")
