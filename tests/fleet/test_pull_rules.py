"""Pulls: which is next, and how one ended."""

from dataclasses import replace

from turnout.fleet.pull_rules import ModelPull, PullFailure, PullState, ended, next_pull, pull_id


def pull(repo: str, asked_at: float = 0.0, state: PullState = PullState.WAITING) -> ModelPull:
    return ModelPull(pull_id("hf", repo), "hf", repo, asked_at, "k1", state=state)


def test_the_same_model_of_the_same_hub_is_one_pull() -> None:
    assert pull_id("hf", "org/m") == pull_id("hf", "org/m")
    assert len({pull_id(hub, repo) for hub in ("hf", "ms") for repo in ("org/m", "org/n")}) == 4
    assert pull_id("hf", "org/m").startswith("pull_") and len(pull_id("hf", "org/m")) == len("pull_") + 16


def test_what_was_under_way_goes_on_and_then_the_first_that_waits() -> None:
    waiting, later = pull("a/waiting", 10.0), pull("a/later", 20.0)
    over = [pull(f"a/{state}", 1.0, state) for state in (PullState.COMPLETED, PullState.FAILED, PullState.CANCELLED)]  # fmt: skip
    under_way = pull("a/running", 30.0, PullState.RUNNING)
    assert next_pull([*over, later, waiting, under_way]) is under_way
    assert next_pull([*over, later, waiting]) is waiting
    assert next_pull(over) is None and next_pull([]) is None


def test_a_pull_that_ended_has_all_its_bytes_or_says_why_not() -> None:
    begun = replace(pull("org/m", state=PullState.RUNNING), bytes=3, of=10, reason="once", reason_code="c")
    whole = replace(begun, state=PullState.COMPLETED, bytes=10, reason="", reason_code="", ended_at=7.0)
    assert ended(begun, None, 7.0) == whole
    failed = ended(begun, PullFailure("x" * 301, "disk_full"), 7.0)
    assert failed == replace(
        begun, state=PullState.FAILED, reason="x" * 300, reason_code="disk_full", ended_at=7.0
    )
    assert ended(begun, PullFailure("x"), 7.0).reason_code == ""
