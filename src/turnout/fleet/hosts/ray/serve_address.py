"""Where Serve's own HTTP server is reached from the nodes of the cluster."""

from typing import Any, cast

import ray as _ray
from ray.serve import context as _context

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.cluster_reach import at_address

ray, context = cast("Any", _ray), cast("Any", _context)

_HEAD = "node:__internal_head__"


def serve_url() -> str:
    """On the head, where it always runs if at all. Raises Misconfigured."""
    url: str = context._get_global_client().root_url
    if not url:
        raise Misconfigured("gangs on Ray call a gateway, and Serve has no HTTP server: set ray_gateway_url")
    head = next(n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"] and _HEAD in n["Resources"])
    return at_address(url, head)
