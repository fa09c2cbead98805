"""A cluster of several machines needs one Redis and one object store."""

from typing import Any

import pytest

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.shared_storage import refuse_local, refuse_rank
from turnout.run.config import Config, load
from turnout.serve import app

REDIS = "redis://10.0.0.5/0"


def configured(**settings: Any) -> Config:
    return load(settings, {}).config


def test_a_directory_of_this_machine_is_refused_when_there_are_others() -> None:
    local = configured(redis_url=REDIS)
    refuse_local(local, ())
    with pytest.raises(Misconfigured, match=r"10\.0\.0\.9.* do not have the directory of videos"):
        refuse_local(local, {"10.0.0.9"})
    refuse_local(configured(redis_url=REDIS, blobs="s3://videos/x"), {"10.0.0.9"})
    refuse_local(configured(redis_url=REDIS, blobs="/mnt/videos", blobs_shared=True), {"10.0.0.9"})


def test_the_embedded_redis_is_refused_when_there_are_others() -> None:
    with pytest.raises(Misconfigured, match="embedded Redis"):
        refuse_local(configured(blobs="s3://videos/x"), {"10.0.0.9"})


def test_a_rank_on_a_machine_that_joined_later_makes_no_video_that_nobody_finds() -> None:
    refuse_rank(None, "10.0.0.9")
    refuse_rank("10.0.0.1", "10.0.0.1")
    refuse_rank("10.0.0.1", "127.0.0.1")
    with pytest.raises(Misconfigured, match=r"on 10\.0\.0\.1 alone"):
        refuse_rank("10.0.0.1", "10.0.0.9")


@pytest.mark.parametrize("ingress", ["yes", 1, None, ""])
def test_ingress_is_true_or_false(ingress: object) -> None:
    with pytest.raises(Misconfigured, match="ingress is true or false"):
        app({"ingress": ingress})


def test_an_application_for_any_node_needs_what_every_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_REDIS_URL", REDIS)
    with pytest.raises(Misconfigured, match="same objects"):
        app({"ingress": True})
    monkeypatch.delenv("TURNOUT_REDIS_URL")
    with pytest.raises(Misconfigured, match="same Redis"):
        app({"ingress": "false"})


def test_an_argument_that_nobody_reads_is_refused() -> None:
    with pytest.raises(Misconfigured, match="'ingres'"):
        app({"ingres": "true"})
