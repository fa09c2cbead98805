"""Parts of a service: restarted when they die, and ended together when one was told that the service is to end."""

import asyncio
from pathlib import Path

from turnout.processes.child import Child
from turnout.processes.local_parts import DISMISSED, Part, run_parts


def part(name: str, script: str, folder: Path, started: list[str]) -> Part:
    async def start() -> Child:
        started.append(name)
        return await Child.start(name, ["/bin/sh", "-c", script], log=folder / f"{name}.log")

    return Part(name, start, 5.0)


async def test_a_part_that_was_dismissed_ends_the_service_and_is_not_started_again(tmp_path: Path) -> None:
    started: list[str] = []
    parts = [
        part("other", "exec sleep 60", tmp_path, started),
        part("dismissed", f"exit {DISMISSED}", tmp_path, started),
    ]
    stopping = asyncio.Event()
    await asyncio.wait_for(run_parts(parts, stopping, lambda: None), 30)
    assert stopping.is_set()
    assert started == ["other", "dismissed"]


async def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    started: list[str] = []
    stopping = asyncio.Event()
    marker = tmp_path / "once"
    script = f"test -e {marker} && exit {DISMISSED}; touch {marker}; exit 1"
    await asyncio.wait_for(run_parts([part("dies", script, tmp_path, started)], stopping, lambda: None), 30)
    assert started == ["dies", "dies"]
