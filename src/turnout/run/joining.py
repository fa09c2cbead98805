"""How a worker joins its gateway, and what it runs for it: the checks before anything is sent, and the rules for orders."""

import os
import re
import shlex
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from turnout.errors import Misconfigured
from turnout.fleet.model_rules import EngineKind
from turnout.run.client_tls import client_tls, pinned_tls, read_fingerprints
from turnout.run.config import Config
from turnout.store.address_rules import is_server_url
from turnout.telemetry.log import get_log
from turnout.worker.host_identity import is_this_machine
from turnout.worker.order_rules import OrderRules


@dataclass(frozen=True, slots=True)
class Joining:
    """The gateway at `url` is joined with a worker key. `name` is shown to admins, and names the worker's own folder,
    so that several can live on one machine. Gateways reach it at `public_url`, through a tunnel, or at its own port.

    With `fingerprints` the gateway must show one of these certificates, whoever signed it. `plaintext` allows http to
    another machine: whoever is on the way reads the key and the prompts, and orders what the rules allow."""

    url: str
    key: str
    name: str | None = None
    public_url: str | None = None
    tunnel: bool = False
    fingerprints: tuple[str, ...] = ()
    plaintext: bool = False

    @property
    def local(self) -> bool:
        """Whether the gateway is on this machine, so that nobody is on the way."""
        return is_this_machine(urlsplit(self.url).hostname or "")


def check_joining(joining: Joining) -> None:
    """Raises Misconfigured for what contradicts itself or is not safe."""
    if not is_server_url(joining.url):
        raise Misconfigured(
            f"{joining.url!r} is not the http or https URL of a gateway (--join or MANAGER_URL)"
        )
    if not (joining.key.isascii() and joining.key.isprintable()):
        raise Misconfigured("the join code or key has characters that none has; copy it again")
    if joining.public_url and not is_server_url(joining.public_url):
        raise Misconfigured(f"{joining.public_url!r} is no http or https URL (--public-url or PUBLIC_URL)")
    scheme = urlsplit(joining.url).scheme
    if scheme == "http" and joining.fingerprints:
        raise Misconfigured("--gateway-fingerprint needs an https gateway: plain http shows no certificate")
    if scheme == "http" and not joining.local and not joining.plaintext:
        raise Misconfigured(
            f"{joining.url} is not encrypted: whoever is on the way could read the key and the prompts, and order this"
            " worker about. Join by https (--ca-file or --gateway-fingerprint for a certificate of one's own), or give"
            " --allow-plaintext on a network that you trust"
        )
    if joining.tunnel and joining.public_url:
        raise Misconfigured("a worker is reached by --public-url or by --tunnel, not by both")
    if joining.name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}", joining.name):
        raise Misconfigured("a worker's --id is up to 60 letters, digits, dots, dashes and underscores")
    read_fingerprints(joining.fingerprints)


def warn_of_root(joining: Joining) -> None:
    if os.geteuid() == 0 and not joining.local:
        get_log().warning("this worker runs as root, and so do its engines: give it a user of its own")


def gateway_tls(config: Config, joining: Joining) -> ssl.SSLContext:
    """For connections to the gateway that is joined."""
    if not joining.fingerprints:
        return client_tls(config.outbound.ca_file)
    return pinned_tls(read_fingerprints(joining.fingerprints))


def order_rules(config: Config, joining: Joining, found: frozenset[EngineKind]) -> OrderRules:
    """What this worker's own configuration allows. Models that its own file declares may be run as they are there; a
    gateway on this machine may name any weights."""
    declared = (model.server.command for model in config.models if model.engine is EngineKind.COMMAND)
    commands = None
    if not config.worker.allow_registered_commands:
        commands = frozenset(
            {*declared, *(tuple(shlex.split(line)) for line in config.worker.worker_commands)}
        )
    allowed = found if config.worker.worker_engines is None else found & set(config.worker.worker_engines)
    if commands is not None and not commands:
        allowed -= {EngineKind.COMMAND}
    weights_dirs = config.worker.worker_weights_dirs
    return OrderRules(
        engines=frozenset(allowed),
        commands=commands,
        video_engines=frozenset(model.video.video_engine for model in config.models if model.video),
        weights=frozenset(_named_weights(config)),
        weights_dirs=() if weights_dirs is None and not joining.local else weights_dirs,
    )


def _named_weights(config: Config) -> Iterator[str]:
    for model in config.models:
        yield model.weights
        for lora in model.video.loras if model.video else ():
            yield from lora.paths
