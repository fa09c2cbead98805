"""The URL by which gateways reach this worker."""

import contextlib
import ipaddress
import socket
from urllib.parse import urlsplit

from turnout.errors import Misconfigured
from turnout.fleet.worker_rules import TUNNEL
from turnout.store.address_rules import in_url


def check_advertised(url: str) -> None:
    """Refuses an address that means "here" to whoever reads it."""
    if url == TUNNEL:
        return
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misconfigured(f"{url!r} is not an http or https URL by which gateways could reach this worker")
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(parts.hostname).is_unspecified:
            raise Misconfigured(
                f"{parts.hostname} is no address that gateways could reach; give a --public-url, or --tunnel"
            )


def has_name(url: str) -> bool:
    """Whether the URL leads to whatever address a name has."""
    if url == TUNNEL:
        return False
    try:
        ipaddress.ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return True
    return False


def reachable_host(bound: str, gateway_url: str) -> str:
    """The host, as URLs write it, to advertise for a server bound to `bound`: itself, or, for "all interfaces", the address that
    this machine has on the way to the gateway. Nothing is sent."""
    try:
        if not ipaddress.ip_address(bound).is_unspecified:
            return in_url(bound)
    except ValueError:
        return bound  # a name
    parts = urlsplit(gateway_url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            host = str(probe.getsockname()[0])
    except OSError as err:
        raise Misconfigured(f"cannot tell this machine's address towards {gateway_url}: {err}") from err
    return in_url(host)
