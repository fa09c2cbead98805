"""The socket that a part of the service listens on, and whether it may be open to all. Worker and `up` start with this, and
without the gateway."""

import errno
import socket

from turnout.errors import Misconfigured
from turnout.gateway.gateway_settings import GatewaySettings
from turnout.store.address_rules import in_url, is_loopback_name


def listen(host: str, port: int) -> socket.socket:
    """Bound here and handed to the gateway, so that connections wait while a gateway restarts."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as err:
        ours = not isinstance(err, socket.gaierror) and err.errno != errno.EADDRNOTAVAIL
        hint = (
            "give another --port"
            if ours
            else "--host is an address of this machine, or 0.0.0.0 for all of them"
        )
        raise Misconfigured(f"cannot listen on {host}:{port}: {err.strerror}; {hint}") from err
    return listening


def check_open_mode(settings: GatewaySettings, host: str) -> None:
    """Raises Misconfigured."""
    if not is_loopback_name(in_url(host)):
        raise Misconfigured(f"no_auth: {host} is not loopback, and anyone who reaches it could do everything")
    if "*" in settings.allowed_origins:
        raise Misconfigured("cors_origins: with no_auth, name the origins: * would let any web page in")
