"""What must be reached from where on a cluster: a gateway from every machine that has gangs; Redis and the objects from where the
manager and the ingress are, and nowhere else."""

from collections.abc import Collection
from urllib.parse import urlsplit

from turnout.errors import Misconfigured
from turnout.run.config import Config
from turnout.store.address_rules import in_url, is_loopback_name

_EVERYWHERE = ("0.0.0.0", "::")
_SHARE = "set blobs to s3://bucket/prefix; or to a directory that all nodes mount at the same path, and blobs_shared to true"


def gateway_url(config: Config, local: str, here: str) -> str:
    """Where gangs call the gateway of this machine: as configured; else at the machine's address on the cluster, `here`, if the
    gateway listens there without TLS, which would need a name; else at `local`."""
    public = config.gateway.public_url
    if config.ray.ray_gateway_url:
        return config.ray.ray_gateway_url
    if public and not is_local(public):
        return public
    if config.gateway.host in _EVERYWHERE and config.gateway.tls_cert is None:
        return f"http://{in_url(here)}:{urlsplit(local).port}"
    return local


def is_local(url: str) -> bool:
    """Whether only this machine reaches it."""
    return is_loopback_name(urlsplit(url).netloc)


def at_address(url: str, address: str) -> str:
    """The URL of a server that listens there, for others: one that listens everywhere is reached at its machine's `address`."""
    parts = urlsplit(url)
    if parts.hostname not in _EVERYWHERE:
        return url
    return parts._replace(netloc=f"{in_url(address)}:{parts.port}").geturl()


def refuse_local_gateway(url: str, elsewhere: Collection[str]) -> None:
    """`elsewhere` are the addresses of nodes on other machines. Raises Misconfigured."""
    if elsewhere and is_local(url):
        raise Misconfigured(
            f"gangs on other machines ({', '.join(sorted(elsewhere))}) cannot reach the gateway at {url}: let it listen for "
            "them (--host 0.0.0.0), or set public_url or ray_gateway_url"
        )


def is_kept_here(config: Config) -> bool:
    """Whether Redis or the objects are on this machine alone, and so the manager must be, too."""
    embedded = (config.redis.redis_url or "unix:").startswith("unix:")
    return embedded or not config.objects.shared


def refuse_local_stores(config: Config) -> None:
    """For a manager or an ingress that may run on any node, also on those that are yet to come."""
    if not config.redis.redis_url:
        raise Misconfigured(
            "on Ray the manager needs the service's Redis on whatever node it is: set redis_url"
        )
    if not config.objects.shared:
        raise Misconfigured(f"on Ray the manager needs the objects on whatever node it is: {_SHARE}")


def refuse_without_gateway(config: Config) -> None:
    """For gangs that nobody told where their gateway is."""
    if not (config.ray.ray_gateway_url or config.gateway.public_url):
        raise Misconfigured("gangs on Ray call a gateway: set ray_gateway_url or public_url, or ingress=true")
