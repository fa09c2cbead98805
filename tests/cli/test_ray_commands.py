"""What `turnout ray` prints; the cluster itself is in tests/on_ray."""

import socket

import yaml
from tests.cli.conftest import Cli

from turnout.cli.ray_commands import describe


def test_what_serve_says_of_a_deployment_is_shown() -> None:
    from turnout.fleet.hosts.ray.cluster_status import ClusterStatus

    deployments = {"Manager": "HEALTHY", "VideoGenerator-m-0": "UPDATING"}
    told = describe(
        ClusterStatus([], deployments, {"VideoGenerator-m-0": "1 replica:\n waits for {'GPU': 8}"})
    )
    assert "VideoGenerator-m-0: 1 replica: waits for {'GPU': 8}" in told
    assert "Manager:" not in told


def test_the_file_for_serve_deploy_is_printed(bare_cli: Cli) -> None:
    (bare_cli.cwd / "t.yaml").write_text("redis_prefix: prod\n")
    done = bare_cli("ray", "app", "--config", "t.yaml", "--ingress")
    assert done.code == 0, done.err
    [app] = yaml.safe_load(done.out)["applications"]
    assert (app["name"], app["import_path"]) == ("turnout-prod", "turnout.serve:app")
    assert (app["args"]["config"], app["args"]["ingress"]) == (str(bare_cli.cwd / "t.yaml"), True)
    [manager] = app["deployments"]
    assert manager["user_config"]["turnout"] == "turnout-prod"


def test_up_on_a_cluster_that_is_not_there_says_so_and_starts_nothing(bare_cli: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = bare_cli("up", "--ray", "--address", address, "--port", "0")
    assert done.code != 0 and f"no Ray cluster at {address}" in done.err
    assert "is up" not in done.out
