"""Settings of the gateway's own listening: addresses, connections, bodies, and how it leaves."""

from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from turnout.setting_types import Count, Port, ServerUrl, SomeSeconds


def _listed(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _networks(text: str) -> str:
    for one in _listed(text):
        ip_network(one, strict=False)
    return text


def _origins(text: str) -> str:
    for origin in _listed(text):
        parts = urlsplit(origin)
        if origin != "*" and f"{parts.scheme}://{parts.netloc}" != origin:
            raise ValueError(f"{origin} is no origin like https://app.example.com")
    return text


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """`trusted_proxies` are networks, `cors_origins` origins of web pages, with commas between them. `public_url` is how
    clients reach the gateways."""

    host: str = "127.0.0.1"
    port: Port = 8000
    public_url: ServerUrl | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    cors_origins: Annotated[str, AfterValidator(_origins)] = ""
    max_connections: Count = 8192
    max_connections_per_address: Count = 1024
    max_body_bytes: Count = 24 * 2**20
    max_bodies_bytes: Count = 512 * 2**20
    gateway_drain_s: SomeSeconds = 3.0
    gateway_linger_s: SomeSeconds = 0.0

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        return _listed(self.cors_origins)

    @property
    def proxy_networks(self) -> tuple[str, ...]:
        return _listed(self.trusted_proxies)
