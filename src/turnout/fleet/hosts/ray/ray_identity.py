"""What tells services, applications and versions on a Ray cluster apart: names, marks, and digests of settings.

Serve replaces a deployment whose version changed, and leaves the others as they are. A setting that is not known to be of
no use to a part counts for it.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnout import __version__
from turnout.run.config import Config, dump
from turnout.store.server_url import url_parts
from turnout.worker.worker_settings import WorkerSettings

OURS = "turnout"
KEEPER = "Manager"  # the deployment that keeps the manager

_OWN = frozenset({"host", "port", "ray_dashboard"})
"""Of one process, wherever it listens, and of the cluster that it starts."""
_OF_GATEWAYS = _OWN | {
    "cors_origins", "currency", "gateway_drain_s", "gateway_linger_s", "limit_chat_concurrency", "limit_chat_requests_per_minute",
    "limit_chat_tokens_per_minute", "limit_submits_per_minute", "limit_waiting", "log_quota_bytes", "max_bodies_bytes",
    "max_body_bytes", "max_connections", "max_connections_per_address", "max_image_pixels", "metrics_auth", "no_auth", "oidc",
    "open_key", "ray_ingress_labels", "state_quota_bytes", "tls_cert", "tls_key", "trusted_proxies",
}  # fmt: skip
_OF_DECISIONS = frozenset({
    "kubernetes_jobs", "min_resident_s", "ray_fit_s", "ray_health_period_s", "ray_health_timeout_s", "ray_manager_labels",
    "ray_turn_s", "webhook_secret",
})  # fmt: skip
"""The manager's alone."""
_OF_SCALING = frozenset({"idle_s", "max_replicas", "min_replicas", "share", "version_of"})
"""Of a model: the manager and gateways decide by them."""


@dataclass(frozen=True, slots=True)
class ManagerTerms:
    """What a manager was made for: its version, the service, the Serve application that keeps it, and the address of the machine
    that it must be on, if that matters."""

    version: str
    service: str
    app: str
    machine: str | None


def namespace_of(config: Config) -> str:
    """Ray's namespace of a service's manager, and the name of the application that `turnout up` deploys: services with
    different prefixes share a cluster."""
    return OURS if config.redis.redis_prefix == OURS else f"{OURS}-{config.redis.redis_prefix}"


def mark_of(config: Config) -> dict[str, str]:
    """The `user_config` of the keeper's deployment."""
    return {OURS: namespace_of(config)}


def marked(app: Mapping[str, Any]) -> str | None:
    """The namespace of the service that an application belongs to, as Serve shows it; None for one that is not ours,
    whatever its deployments are called."""
    try:
        return app["deployments"][KEEPER]["deployment_config"]["user_config"][OURS]
    except (KeyError, TypeError):  # TypeError: it has no user_config
        return None


def manager_terms(config: Config, app: str, machine: str | None) -> ManagerTerms:
    return ManagerTerms(manager_version(config), service_of(config), app, machine)


def service_of(config: Config) -> str:
    """The same for all configurations of one service: it is known by its Redis and its prefix. No secret is in it."""
    url = url_parts(config.redis.redis_url or f"unix://{config.state_dir}")
    return _digest([url.netloc.rpartition("@")[2], url.path, config.redis.redis_prefix])


def manager_version(config: Config) -> str:
    return _digest(_settings(config, _OF_GATEWAYS))


def ingress_version(config: Config) -> str:
    return _digest([_settings(config, _OWN | _OF_DECISIONS | {"models"}), _models(config)])


def gang_version(config: Config, model: str) -> str:
    """Of this model's gangs: other models, and how many gangs there are, change nothing in them."""
    used = _settings(of_gangs(config), _OF_GATEWAYS | _OF_DECISIONS | {"models"})
    return _digest([used, _models(config)[model]])


def of_gangs(config: Config) -> Config:
    """What gangs on Ray are told of it: no credential is in it."""
    url = config.ray.ray_gateway_url or config.gateway.public_url
    ray = replace(config.ray, ray_gateway_url=url)
    return replace(config.of_computing(), ray=ray, worker=WorkerSettings())


def app_file(config: Config, file: Path | None, *, ingress: bool) -> dict[str, Any]:
    """What `serve deploy` takes. Serve builds the application again when its arguments have changed, which drains all gangs;
    so they have a digest of what gangs use. The rest of the configuration is in the digest that the manager's keeper has."""
    slots = {m.name: (m.scaling.max_replicas, gang_version(config, m.name)) for m in config.models_on_ray}
    built = _digest([slots, ingress_version(config) if ingress else None])
    arguments = {**({"config": str(file)} if file else {}), **({"ingress": True} if ingress else {})}
    keeper = {"name": KEEPER, "user_config": {**mark_of(config), "digest": manager_version(config)}}
    app = {
        "name": namespace_of(config),
        "route_prefix": "/" if ingress else None,
        "import_path": "turnout.serve:app",
        "args": {**arguments, "digest": built},
        "deployments": [keeper],
    }
    return {**({} if ingress else {"proxy_location": "Disabled"}), "applications": [app]}


def _settings(config: Config, needless: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in dump(config).items() if name not in needless}


def _models(config: Config) -> dict[str, dict[str, Any]]:
    """Without what the manager alone decides by."""
    models: Mapping[str, Mapping[str, Any]] = dump(config)["models"]
    return {
        name: {field: value for field, value in model.items() if field not in _OF_SCALING}
        for name, model in models.items()
    }


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps([__version__, values], sort_keys=True).encode()).hexdigest()[:16]
