"""Gangs on a cluster call a gateway that their machines reach; only the manager needs Redis and the objects."""

from typing import Any

import pytest

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.cluster_reach import at_address, gateway_url, is_kept_here, refuse_local_gateway
from turnout.run.config import Config, load
from turnout.serve import app, read_config

REDIS = "redis://10.0.0.5/0"
LOCAL, HERE = "http://127.0.0.1:8000", "10.0.0.1"


def configured(**settings: Any) -> Config:
    return load(settings, {}).config


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, LOCAL),
        ({"host": "0.0.0.0"}, "http://10.0.0.1:8000"),
        ({"host": "::"}, "http://10.0.0.1:8000"),
        ({"host": "0.0.0.0", "public_url": "http://127.0.0.1:8000"}, "http://10.0.0.1:8000"),
        ({"public_url": "https://video.example.com"}, "https://video.example.com"),
        (
            {"public_url": "https://video.example.com", "ray_gateway_url": "http://10.0.0.7:80"},
            "http://10.0.0.7:80",
        ),
        ({"host": "0.0.0.0", "tls_cert": "cert.pem", "tls_key": "key.pem"}, LOCAL),
    ],
)
def test_gangs_call_the_gateway_where_it_listens_for_them(settings: dict[str, Any], url: str) -> None:
    assert gateway_url(configured(**settings), LOCAL, HERE) == url


def test_an_ipv6_node_has_brackets() -> None:
    assert gateway_url(configured(host="::"), LOCAL, "fd00::1") == "http://[fd00::1]:8000"


def test_a_gateway_of_this_machine_alone_is_refused_when_there_are_others() -> None:
    refuse_local_gateway(LOCAL, ())
    refuse_local_gateway("http://10.0.0.1:8000", {"10.0.0.9"})
    with pytest.raises(Misconfigured, match=r"10\.0\.0\.9.* cannot reach the gateway at http://127"):
        refuse_local_gateway(LOCAL, {"10.0.0.9"})


def test_a_server_that_listens_everywhere_is_reached_at_its_machine() -> None:
    assert at_address("http://0.0.0.0:8000/api", HERE) == "http://10.0.0.1:8000/api"
    assert at_address("http://127.0.0.1:8000", HERE) == "http://127.0.0.1:8000"


def test_the_manager_stays_where_redis_or_the_objects_are() -> None:
    assert is_kept_here(configured())
    assert is_kept_here(configured(redis_url=REDIS))
    assert is_kept_here(configured(blobs="s3://videos/x"))
    assert not is_kept_here(configured(redis_url=REDIS, blobs="s3://videos/x"))
    assert not is_kept_here(configured(redis_url=REDIS, blobs="/mnt/videos", blobs_shared=True))


@pytest.mark.parametrize("ingress", ["yes", 1, None, ""])
def test_ingress_is_true_or_false(ingress: object) -> None:
    with pytest.raises(Misconfigured, match="ingress is true or false"):
        app({"ingress": ingress})


def test_a_manager_on_any_node_needs_what_every_node_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misconfigured, match="set redis_url"):
        read_config(None)
    monkeypatch.setenv("TURNOUT_REDIS_URL", REDIS)
    with pytest.raises(Misconfigured, match="set blobs"):
        read_config(None)
    monkeypatch.setenv("TURNOUT_BLOBS", "s3://videos/x")
    assert read_config(None).redis.redis_url == REDIS


def test_an_application_without_a_gateway_must_say_where_there_is_one() -> None:
    with pytest.raises(Misconfigured, match="ray_gateway_url"):
        app({"ingress": "false"})


def test_an_argument_that_nobody_reads_is_refused() -> None:
    with pytest.raises(Misconfigured, match="'ingres'"):
        app({"ingres": "true"})
