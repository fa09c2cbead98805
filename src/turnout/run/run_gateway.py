"""Runs a gateway: its adapters, and one server for HTTP and the relay."""

import asyncio
import gc
import ipaddress
import secrets
import shutil
import socket
import time
from contextlib import aclosing, suppress
from functools import partial

from turnout.errors import Misconfigured
from turnout.fleet.gang_reports import GangReports
from turnout.gateway.gateway import Gateway
from turnout.gateway.gateway_settings import GatewaySettings
from turnout.gateway.middleware import STANDARD_HEADERS
from turnout.relay import ClientLimits, RelaySettings
from turnout.run.build_gateway import GatewayOutside, build_gateway
from turnout.run.client_tls import client_tls
from turnout.run.config import Config
from turnout.run.gateway_server import GatewayServer
from turnout.run.listening import check_open_mode
from turnout.run.open_files import raise_open_files
from turnout.run.open_stores import find_url_signer, open_stores
from turnout.run.tls import certificate_expiry, server_tls
from turnout.store.connection import RedisConnection
from turnout.store.data_copy import wait_restored
from turnout.store.outbound import WORKERS, Outbound
from turnout.stores import Stores
from turnout.tasks.signed_urls import UrlSigner
from turnout.telemetry.log import get_log
from turnout.tenants.key_store import KeyStore
from turnout.tenants.oidc import OidcLogins

_OTHER_FILES = 256  # of this process: Redis, engines, objects


def new_task_id() -> str:
    """Sorts by time: milliseconds, then chance."""
    return f"{int(time.time() * 1000):012x}{secrets.token_hex(8)}"


async def run_gateway(config: Config, listening: socket.socket, local: socket.socket | None = None) -> None:
    """Serves HTTP on a socket that is bound already, so that a restart refuses no connection. `local` is one on loopback
    that is never behind TLS, for the other parts on this machine."""
    certificate = server_tls(config.gateway)
    tls = client_tls(config.outbound.ca_file)
    async with (
        open_stores(config) as stores,
        aclosing(Outbound(config.outbound.allow_private_urls)) as fetcher,
        aclosing(Outbound(True, reach=WORKERS, tls=tls)) as prober,
    ):
        await _refuse_open_door(config, listening, stores.tenants.keys)
        await stores.data.check_data()  # remembers which data this is

        open_key = config.access.open_key if config.access.no_auth else None
        gateway = gateway_on(
            config,
            stores,
            fetcher,
            prober,
            relay_settings(config.gateway),
            await find_url_signer(config, stores),
            open_key=open_key,
        )
        server = GatewayServer(
            gateway, config.gateway, {listening: certificate.context if certificate else None}
        )
        if local is not None:
            server.listeners[local] = None
        # What is there now stays: the collector need not look at all of it again for every few thousand requests.
        gc.collect()
        gc.freeze()
        # A request makes hundreds of objects and leaves none: by default a submission would pay a twelfth of its CPU for looks.
        gc.set_threshold(10_000)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_end_when_restored(stores.link, server), name="restored")
            await server.serve(sockets=[*server.listeners])
            watching.cancel()
        await gateway.chat.usage.flush()  # also what was cut just now


async def _end_when_restored(link: RedisConnection, server: GatewayServer) -> None:
    """Keys, secrets and what else this process remembers are those of the data before: whoever runs it starts it again."""
    await wait_restored(link)
    get_log().warning("gateway ends to begin anew", reason="the data was restored from a copy")
    server.should_exit = True


def relay_settings(settings: GatewaySettings) -> RelaySettings:
    most, each = settings.max_connections, settings.max_connections_per_address
    files = raise_open_files() - _OTHER_FILES
    if files < most:  # one address must not have them all
        most, each = files, min(each, files // 2)
    limits = ClientLimits(
        max_connections=most,
        max_connections_per_address=each,
        trusted_proxies=settings.proxy_networks,
        cors_origins=frozenset(origin.encode() for origin in settings.allowed_origins),
        max_body_bytes=settings.max_body_bytes,
        max_bodies_bytes=settings.max_bodies_bytes,
    )
    headers = tuple((name.decode(), value.decode()) for name, value in STANDARD_HEADERS)
    return RelaySettings(client=limits, response_headers=headers)


def gateway_on(
    config: Config,
    stores: Stores,
    fetcher: Outbound,
    prober: Outbound,
    relay: RelaySettings,
    urls: UrlSigner,
    gangs: GangReports | None = None,
    open_key: str | None = None,
) -> Gateway:
    """The gateway on these stores. `prober` calls the OpenID Connect issuer, too. `open_key`: only for a gateway that listens
    on loopback."""
    outside = GatewayOutside(
        fetcher,
        prober,
        relay,
        urls,
        new_id=new_task_id,
        new_seed=lambda: secrets.randbits(32),
        tls=client_tls(config.outbound.ca_file),
        logins=OidcLogins(config.access.oidc, prober, time.monotonic) if config.access.oidc else None,
        open_key=open_key,
        gangs=gangs,
        disks=partial(_disks, config),
        certificate_expiry=partial(certificate_expiry, config.gateway.tls_cert),
    )
    return build_gateway(config, stores, outside)


def _disks(config: Config) -> dict[str, tuple[int, int]]:
    """(size, free) of the disk that has the state directory, and of another one that objects lie on."""
    found: dict[str, tuple[int, int]] = {}
    directories = {"state": str(config.state_dir), "objects": config.objects.blobs or ""}
    for of, directory in directories.items():
        if directory and "://" not in directory:
            with suppress(OSError):
                usage = shutil.disk_usage(directory)
                found[of] = (usage.total, usage.free)
    return found


async def _refuse_open_door(config: Config, listening: socket.socket, keys: KeyStore) -> None:
    host = str(listening.getsockname()[0])
    if config.access.no_auth:
        check_open_mode(config.gateway, host)
        if config.access.open_key is None:
            raise Misconfigured("no_auth is for `turnout up`")
    if not ipaddress.ip_address(host).is_loopback and not await keys.all():
        raise Misconfigured(
            f"{host} is not loopback and there are no keys: make one with `turnout keys create --direct --role admin`"
        )
