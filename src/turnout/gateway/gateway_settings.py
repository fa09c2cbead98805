"""Settings of the gateway's own listening: addresses, connections, bodies, and how it leaves."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from turnout.errors import Misconfigured
from turnout.setting_types import Count, Port, SomeSeconds


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """`trusted_proxies` are networks, `cors_origins` origins of web pages, with commas between them. `public_url` is how
    clients reach the gateways."""

    host: str = "127.0.0.1"
    port: Port = 8000
    public_url: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: str = ""
    cors_origins: str = ""
    max_connections: Count = 8192
    max_connections_per_address: Count = 1024
    max_body_bytes: Count = 24 * 2**20
    max_bodies_bytes: Count = 512 * 2**20
    gateway_drain_s: SomeSeconds = 3.0
    gateway_linger_s: SomeSeconds = 0.0

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """Raises Misconfigured."""
        origins = tuple(one.strip() for one in self.cors_origins.split(",") if one.strip())
        for origin in origins:
            parts = urlsplit(origin)
            if origin != "*" and f"{parts.scheme}://{parts.netloc}" != origin:
                raise Misconfigured(f"cors_origins: {origin} is no origin like https://app.example.com")
        return origins
