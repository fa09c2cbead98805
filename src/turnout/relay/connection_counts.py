"""How many connections are open, in all and by address; past a bound new ones are refused. One in a TLS handshake counts as
open: it costs the same, and a stranger can leave it at that."""

import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from turnout.relay.relay_settings import ClientLimits

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Peer: TypeAlias = tuple[str, int]
_IPV6_PREFIX = 64  # one customer has at least so much


class ConnectionCounts:
    """Addresses are counted as `group_of` writes them; "" is counted in all only."""

    def __init__(self, limits: ClientLimits) -> None:
        self._most = limits.max_connections
        self._most_each = limits.max_connections_per_address
        self._proxies = read_networks(limits.trusted_proxies)
        self._total = 0
        self._by_address: Counter[str] = Counter()
        self._handshakes: dict[Peer, str] = {}  # those under way, and what each is counted as

    @property
    def total(self) -> int:
        return self._total

    def enter(self, address: str) -> bool:
        """False if the connection must be refused; else `leave` must follow."""
        if self._total >= self._most or (address and self._by_address[address] >= self._most_each):
            return False
        self._total += 1
        if address:
            self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        self._total -= 1
        if address:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def begin_handshake(self, peer: Peer) -> bool:
        """False if the connection must be refused; else `end_handshake` must follow. `peer` has host and port first."""
        address = "" if self.is_proxy(peer[0]) else group_of(peer[0])
        if not self.enter(address):
            return False
        self._handshakes[peer] = address
        return True

    def end_handshake(self, peer: Peer | None) -> None:
        """It failed, or the connection is counted by itself from now on. Nothing is done the second time."""
        if peer is not None and (address := self._handshakes.pop(peer, None)) is not None:
            self.leave(address)

    def is_proxy(self, host: str) -> bool:
        """Whether the peer is a proxy whose word on its clients' addresses is taken."""
        return bool(self._proxies) and _is_in(host, self._proxies)

    def client_of(self, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
        """The client of a request that a trusted proxy passed on: the last that no trusted proxy is itself."""
        hops = [hop for name, value in headers if name == b"x-forwarded-for" for hop in value.split(b",")]
        for hop in reversed(hops):
            host = hop.decode("latin-1").strip()
            if not _is_in(host, self._proxies):
                return host if group_of(host) else None
        return None


def read_networks(given: Sequence[str]) -> tuple[Network, ...]:
    """Raises ValueError."""
    return tuple(ipaddress.ip_network(one, strict=False) for one in given)


def group_of(host: str) -> str:
    """Whom an address belongs to: itself, or its network in IPv6; "" if it is none, such as a Unix socket's."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))


def _is_in(host: str, networks: Sequence[Network]) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address.version == network.version and address in network for network in networks)
