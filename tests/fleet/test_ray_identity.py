"""What makes Serve replace a deployment, and what tells our applications from others."""

from pathlib import Path
from typing import Any

import pytest

from turnout.fleet.hosts.ray.ray_identity import (
    app_file,
    gang_version,
    ingress_version,
    manager_version,
    mark_of,
    marked,
    namespace_of,
    of_gangs,
    service_of,
)
from turnout.run.config import SECRETS, Config, load, settings_of

TINY = {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v", "ulysses": 2}


def configured(more: dict[str, Any] | None = None, **settings: Any) -> Config:
    models = {"a": {**TINY, **(more or {})}, "b": TINY}
    return load({"models": models, "redis_url": "redis://:old@10.0.0.5/0", **settings}, {}).config


BEFORE = configured()


@pytest.mark.parametrize("change", [{"host": "0.0.0.0"}, {"port": 1}])
def test_where_a_gateway_listens_replaces_nothing(change: dict[str, Any]) -> None:
    after = BEFORE.with_settings(**change)
    assert gang_version(after, "a") == gang_version(BEFORE, "a")
    assert manager_version(after) == manager_version(BEFORE)
    assert ingress_version(after) == ingress_version(BEFORE)


@pytest.mark.parametrize("change", [{"idle_s": 7.0}, {"max_replicas": 3}, {"min_replicas": 1}])
def test_what_the_manager_decides_by_replaces_it_and_no_gang(change: dict[str, Any]) -> None:
    after = configured(change)
    assert gang_version(after, "a") == gang_version(BEFORE, "a")
    assert ingress_version(after) == ingress_version(BEFORE)
    assert manager_version(after) != manager_version(BEFORE)


def test_turns_and_labels_replace_no_gang() -> None:
    after = BEFORE.with_settings(
        ray_turn_s=9.0, ray_manager_labels={"zone": "a"}, webhook_secret="whsec_eA=="
    )
    assert gang_version(after, "a") == gang_version(BEFORE, "a")
    assert manager_version(after) != manager_version(BEFORE)


def test_what_ranks_use_replaces_the_gangs_of_that_model_alone() -> None:
    after = configured({"ulysses": 1})
    assert gang_version(after, "a") != gang_version(BEFORE, "a")
    assert gang_version(after, "b") == gang_version(BEFORE, "b")
    assert gang_version(BEFORE.with_settings(checkpoint_steps=9), "b") != gang_version(BEFORE, "b")


@pytest.mark.parametrize(
    "change",
    [
        {"redis_url": "redis://:new@10.0.0.6/0"},
        {"redis_password": "new"},
        {"blobs": "s3://videos/x", "blobs_endpoint": "http://10.0.0.7"},
        {"lease_s": 9.0},
        {"worker_environ": ("HF_HOME",)},
    ],
)
def test_what_only_gateways_and_managers_use_replaces_no_gang(change: dict[str, Any]) -> None:
    after = BEFORE.with_settings(**change)
    assert gang_version(after, "a") == gang_version(BEFORE, "a")
    assert manager_version(after) != manager_version(BEFORE)
    assert ingress_version(after) != ingress_version(BEFORE)


@pytest.mark.parametrize("change", [{"public_url": "https://v.example"}, {"ray_gateway_url": "http://g:1"}])
def test_another_gateway_replaces_the_gangs_that_call_it(change: dict[str, Any]) -> None:
    assert gang_version(BEFORE.with_settings(**change), "a") != gang_version(BEFORE, "a")
    kept = BEFORE.with_settings(ray_gateway_url="http://g:1")
    assert gang_version(kept.with_settings(public_url="https://v.example"), "a") == gang_version(kept, "a")


def test_gangs_are_told_no_credential() -> None:
    config = BEFORE.with_settings(
        redis_password="one", webhook_secret="whsec_eA==", notices="https://a.example/h"
    )
    told = settings_of(of_gangs(config))
    assert not any(told[name] for name in SECRETS)


def test_services_are_told_apart_by_prefix_and_redis_and_not_by_password() -> None:
    assert namespace_of(BEFORE) == "turnout"
    assert namespace_of(configured(redis_prefix="prod")) == "turnout-prod"
    assert service_of(configured(redis_url="redis://:new@10.0.0.5/0")) == service_of(BEFORE)
    assert service_of(configured(redis_url="redis://10.0.0.6/0")) != service_of(BEFORE)
    assert service_of(configured(redis_url="redis://10.0.0.5/1")) != service_of(BEFORE)


def test_a_strangers_deployment_called_manager_is_not_ours() -> None:
    def app(user_config: Any) -> dict[str, Any]:
        return {"deployments": {"Manager": {"deployment_config": {"user_config": user_config}}}}

    assert marked(app(mark_of(BEFORE))) == "turnout"
    assert marked(app(None)) is None
    assert marked(app({"their": "own"})) is None
    assert marked({"deployments": {"Other": {}}}) is None


def test_the_file_for_serve_deploy_changes_with_the_configuration() -> None:
    def printed(config: Config, *, ingress: bool = False) -> dict[str, Any]:
        [app] = app_file(config, Path("turnout.yaml"), ingress=ingress)["applications"]
        return app

    before = printed(BEFORE)
    assert before["args"]["config"] == "turnout.yaml"
    idle = printed(configured({"idle_s": 7.0}))
    assert idle["args"] == before["args"], "Serve would drain every gang"
    assert idle["deployments"] != before["deployments"]
    assert printed(configured({"max_replicas": 2}))["args"] != before["args"], "there is a deployment more"
    assert printed(BEFORE.with_settings(checkpoint_steps=9))["args"] != before["args"]
    served = printed(BEFORE, ingress=True)
    assert served["args"]["ingress"] is True
    assert printed(BEFORE.with_settings(max_body_bytes=9), ingress=True)["args"] != served["args"]
