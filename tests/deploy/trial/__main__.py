"""Installs the chart on the cluster of KUBECONFIG, uses it, breaks it, upgrades it, and removes it. Unattended. The images are to be
there (`deploy/build-images`, then `kind load image-archive` or `ctr images import`). Prints a table of what was seen, and which
stages were skipped for want of an operator; ends with 1 when a stage failed.

    ./dev test-kubernetes --cluster [--tag TAG] [--only STAGE …]
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tests.deploy.trial import credential_stages, gang_stages, life_stages, network_stages
from tests.deploy.trial.cluster import Cluster, Skipped

began = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)


def stages(asked: argparse.Namespace) -> dict[str, Callable[[Cluster], str]]:
    return {
        "defaults": life_stages.defaults,
        "drained": network_stages.drained,
        "policies": network_stages.policies,
        "credentials": credential_stages.credentials,
        "ray": gang_stages.ray,
        "once": gang_stages.once,
        "group": gang_stages.group,
        "keda": gang_stages.keda,
        "pool": gang_stages.pool,
        "job": gang_stages.job,
        "kept": gang_stages.kept,
        "again": life_stages.again,
        "upgrade": lambda cluster: life_stages.upgrade(cluster, asked.from_ref, asked.from_tag),
        "quota": life_stages.quota,
        "hung": life_stages.hung,
        "killed": lambda cluster: life_stages.killed(cluster, asked.next_tag, asked.restart_node),
        "removed": life_stages.removed,
    }


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev test-kubernetes --cluster")
    parser.add_argument("--namespace", default="turnout-trial")
    parser.add_argument("--tag", help="of the images; default: the chart's version")
    parser.add_argument("--next-tag", metavar="TAG", help="of the images to upgrade to under load")
    parser.add_argument(
        "--from-ref", metavar="REF", help="a commit whose chart to upgrade from, as the last release's"
    )
    parser.add_argument("--from-tag", metavar="TAG", help="of the images to upgrade from")
    parser.add_argument("--values", metavar="FILE", action="append", default=[], help="further values")
    parser.add_argument("--restart-node", metavar="COMMAND")
    words = "how to run a command in a node's network, as 'nsenter -t PID -n': the trial itself enforces NetworkPolicies there"
    parser.add_argument("--play-policies", metavar="COMMAND", action="append", default=[], help=words)
    parser.add_argument("--keep", action="store_true", help="leave the release and its namespace")
    known = stages(parser.parse_args([]))
    parser.add_argument("--only", choices=known, action="append", metavar="STAGE", help=", ".join(known))
    return parser.parse_args()


@contextmanager
def policies_played(nodes: list[str]) -> Generator[None]:
    if not nodes:
        yield
        return
    agent = subprocess.Popen([sys.executable, "-m", "tests.deploy.trial.policy_agent", *nodes])
    try:
        yield
    finally:
        agent.terminate()
        agent.wait(60)


def run_stages(cluster: Cluster, asked: argparse.Namespace) -> tuple[list[tuple[str, str, str]], bool]:
    """A row for each stage, and whether all held. A stage that fails does not keep the next from being tried."""
    rows: list[tuple[str, str, str]] = []
    held = True
    for name, stage in stages(asked).items():
        chosen = not asked.keep if name == "removed" else not asked.only or name in asked.only
        if not chosen:
            continue
        say(f"— {name}")
        since = time.monotonic()
        try:
            seen = stage(cluster)
        except Skipped as why:
            seen = f"skipped: {why}"
        except Exception as err:  # noqa: BLE001 - it is told in the table, and by the exit code
            traceback.print_exc()
            seen, held = f"FAILED: {err}", False
        rows.append((name, f"{time.monotonic() - since:.0f} s", seen))
        say(seen)
    return rows, held


def main() -> None:
    asked = read_arguments()
    cluster = Cluster(asked.namespace, asked.tag, say, asked.values)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": asked.namespace, "labels": labels},
    }
    cluster.run("kubectl", "apply", "-f", "-", stdin=json.dumps(namespace))
    with policies_played(asked.play_policies):
        rows, held = run_stages(cluster, asked)
    print("\n| stage | took | seen |\n| --- | --- | --- |")
    print(*(f"| {' | '.join(row)} |" for row in rows), sep="\n")
    sys.exit(not held)


if __name__ == "__main__":
    main()
