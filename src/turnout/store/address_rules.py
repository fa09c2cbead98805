"""Which IP addresses a request may go to. Pure."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

# Addresses that carry an IPv4 address inside, and so lead wherever that leads: NAT64, 6to4, Teredo; and the old
# site-local and IPv4-compatible ranges, which `ipaddress` calls global.
_DISGUISES = tuple(
    IPv6Network(net)
    for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "fec0::/10")
)

_AZURE_HOST = IPv4Address(
    "168.63.129.16"
)  # a public number, but the machine's own host answers, also with secrets

TUNNELS = IPv4Address("127.84.117.110")
"""Where gateways listen for themselves, one port for each worker's tunnel: an address of this machine that no URL may lead to."""

Address: TypeAlias = IPv4Address | IPv6Address


def is_public(address: Address) -> bool:
    """Whether an address is on the open internet, whatever it is dressed as."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address.scope_id is not None or any(address in net for net in _DISGUISES):
            return False
    elif address == _AZURE_HOST or str(address).startswith("192.88.99."):  # or the 6to4 relays
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_host(address: Address) -> bool:
    """Whether one machine can have the address: a worker may be on a private network or on this machine, but not at
    "all interfaces", a group, a gateway's end of a tunnel, or where clouds tell machines their secrets."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return is_host(address.ipv4_mapped)
    if address.is_unspecified or address.is_multicast or address.is_link_local:
        return False
    if address in (_AZURE_HOST, TUNNELS):
        return False
    return address.is_loopback or not address.is_reserved


def is_safe_issuer_url(url: str) -> bool:
    """Whether keys that logins are verified with may come from there: nobody can change them on the way."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.username is not None or parts.query or parts.fragment or not host:
            return False
        if parts.scheme == "https":
            return True
        return parts.scheme == "http" and is_loopback_name(parts.netloc)
    except ValueError:
        return False


def is_server_url(url: str) -> bool:
    """Whether a client can call it at all: http or https, a host, and a port that is one."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half an IPv6 address, or a port that is none
        return False
    return named and url.isprintable() and " " not in url


def is_loopback_name(netloc: str) -> bool:
    """Whether `host` or `host:port` means the machine that says it."""
    try:
        host = urlsplit(f"//{netloc}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def reachable_url(*known: str | None) -> str:
    """Of the addresses that are known for the service, best first, the first that leads here from another machine as well."""
    addresses = [url.rstrip("/") for url in known if url]
    return next((url for url in addresses if not is_loopback_name(url.partition("://")[2])), addresses[0])


def in_url(host: str) -> str:
    """A host as URLs write it: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host else host
