"""The Serve application for `serve run turnout.serve:app`, `serve deploy` and a KubeRay RayService.

Arguments: `config`, a configuration file on the head node (default: ./turnout.yaml and TURNOUT_* variables);
`ingress`, "true" to serve the gateway through Serve's own HTTP server, too.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnout import config as settings
from turnout.domain.errors import Misconfigured


def app(arguments: Mapping[str, str]) -> Any:
    """Builds the application. Raises Misconfigured for a configuration that other machines cannot use."""
    from turnout.wiring.on_ray.serve_app import build_app

    file = arguments.get("config")
    config = settings.load({}, os.environ, Path(file) if file else None).config
    if not config.redis_url:
        raise Misconfigured("on Ray every node needs the same Redis: set redis_url")
    return build_app(config, ingress=arguments.get("ingress", "").lower() == "true")
