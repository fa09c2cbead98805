"""The Serve application for `serve run turnout.serve:app`, `serve deploy` and a KubeRay RayService.

Arguments: `config`, a configuration file that every node has (default: ./turnout.yaml and TURNOUT_* variables);
`ingress`, true to serve the gateway through Serve's own HTTP server, too; `digest`, any text: Serve builds the application
again when it has changed (`turnout ray app` prints a file with all of them).
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.cluster_reach import refuse_local_anywhere
from turnout.run import config as settings

_ARGUMENTS = {"config", "digest", "ingress"}


def app(arguments: Mapping[str, object]) -> Any:
    """Builds the application. Raises Misconfigured for a configuration that other machines cannot use."""
    unknown = sorted(arguments.keys() - _ARGUMENTS)
    if unknown:
        raise Misconfigured(f"there is no argument {unknown[0]!r}; known: {', '.join(sorted(_ARGUMENTS))}")
    ingress = _truth(arguments.get("ingress", False))
    reread = partial(read_config, arguments.get("config"), ingress=ingress)
    config = reread()
    from turnout.fleet.hosts.ray.serve_app import build_app

    return build_app(config, ingress=ingress, reread=reread)


def read_config(file: object, *, ingress: bool) -> settings.Config:
    config = settings.load({}, os.environ, Path(str(file)) if file else None).config
    refuse_local_anywhere(config, ingress=ingress)
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
