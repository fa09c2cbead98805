"""What the trial on a cluster promises of itself, without a cluster."""

import argparse
from typing import Any

import pytest
from tests.deploy.trial import __main__ as trial
from tests.deploy.trial import cluster as in_cluster
from tests.deploy.trial import gang_stages, life_stages, network_stages
from tests.deploy.trial.cluster import Cluster, Skipped, wait
from tests.pace import Patience

ASKED = argparse.Namespace(
    only=None, keep=False, from_ref=None, from_tag=None, next_tag=None, restart_node=None
)


def silent() -> Cluster:
    return Cluster("here", None, lambda _: None)


def test_what_is_only_slow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_machine(slow: float) -> None:
        monkeypatch.setattr(in_cluster, "Patience", lambda limit_s: Patience(limit_s, lambda: slow))

    answers = iter([False, False, True])
    on_a_machine(slow=1000)
    wait(lambda: next(answers), "the third look", 0.01)
    on_a_machine(slow=1)
    with pytest.raises(TimeoutError, match="for nothing"):
        wait(lambda: False, "nothing", 0.01)


def test_what_could_not_be_removed_is_a_row_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is printed then, too, and the trial has failed."""

    def stages(_: Any) -> dict[str, Any]:
        return {"defaults": lambda _: "seen", "keda": skips, "removed": fails}

    def skips(_: Cluster) -> str:
        raise Skipped("no operator")

    def fails(_: Cluster) -> str:
        raise TimeoutError("waited for everything to be gone")

    monkeypatch.setattr(trial, "stages", stages)
    rows, held = trial.run_stages(silent(), ASKED)
    assert [(name, seen) for name, _, seen in rows] == [
        ("defaults", "seen"),
        ("keda", "skipped: no operator"),
        ("removed", "FAILED: waited for everything to be gone"),
    ]
    assert not held
    kept = argparse.Namespace(**{**vars(ASKED), "keep": True, "only": ["defaults"]})
    assert [name for name, *_ in trial.run_stages(silent(), kept)[0]] == ["defaults"]


def test_policies_that_are_enforced_late_are_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    every, late = set(network_stages.PORTS), iter([0, 0, 0])

    def reached(_: Cluster, caller: str) -> set[str]:
        if caller == network_stages.STRANGER and next(late, None) is not None:
            return every
        return network_stages.ALLOWED[caller]

    monkeypatch.setattr(network_stages, "reached", reached)
    monkeypatch.setattr(network_stages, "_start_stranger", lambda _: None)
    monkeypatch.setattr(network_stages, "found_in", lambda *_: set())
    monkeypatch.setattr(network_stages, "secrets_of_the_service", lambda _: {})
    cluster = silent()
    monkeypatch.setattr(Cluster, "install", lambda *_: None)
    monkeypatch.setattr(Cluster, "try_out", lambda _: None)
    monkeypatch.setattr(Cluster, "kubectl", lambda *_, **__: "")
    monkeypatch.setattr(Cluster, "pods", lambda *_: [{"metadata": {"name": "gang-0"}}])
    assert network_stages.policies(cluster).startswith("enforced")


def test_jobs_of_an_earlier_stage_are_not_counted_and_may_expire_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = iter(["old older", "old older one two", "one two"])
    gangs = iter([2, 1, 0])
    state = {"status": "in_progress", "attempt": 1}
    monkeypatch.setattr(Cluster, "install", lambda *_: None)
    monkeypatch.setattr(Cluster, "ask", lambda *_: state)
    monkeypatch.setattr(
        Cluster, "items", lambda *_: [{"metadata": {"uid": uid}} for uid in next(there).split()]
    )
    monkeypatch.setattr(gang_stages, "submit", lambda *_: "task")
    monkeypatch.setattr(gang_stages, "finish", lambda *_: 1)
    monkeypatch.setattr(gang_stages, "running", lambda _: [{}] * next(gangs))
    assert gang_stages.kept(silent()).endswith("2 jobs for 3 tasks")


def test_the_last_stage_removes_the_release() -> None:
    assert list(trial.stages(ASKED).values())[-1] is life_stages.removed
