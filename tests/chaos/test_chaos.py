"""A short run of what `./dev chaos` runs for an hour: faults of most kinds while videos are rendered, and nothing is lost."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.faults import FAULTS
from tests.chaos.run import Plan, run_chaos

TASKS = 28
SHORT = (
    "kill rank",
    "kill gateway",
    "redis away past the lease",
    "kill gang",
    "disk full",
    "kill redis",
    "zombie gang",
    "kill worker",
    "s3 away",
    "redis out of memory",
    "kill manager",
)


@pytest.mark.timeout(900)
async def test_nothing_is_lost_whatever_fails(tmp_path: Path, s3: str, figures: Any) -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    plan = Plan(
        TASKS, tuple(by_name[name] for name in SHORT), seed=20260, clocks=False, limit_s=600, between=(1, 1)
    )
    report = await run_chaos(plan, tmp_path, s3, lambda line: print(line, file=sys.stderr))
    figures(report.table())
    assert not report.wrong, report.table()
    assert report.completed == TASKS
    assert set(SHORT) == set(report.faults), "each fault came"
