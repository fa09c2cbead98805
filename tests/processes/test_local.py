"""Parts of a service: restarted when they die, and ended together when one was told that the service is to end."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from turnout.errors import Misconfigured
from turnout.processes import local_parts
from turnout.processes.child import Child
from turnout.processes.life_signs import LifeSigns
from turnout.processes.local_parts import DISMISSED, Part, run_parts


def part(name: str, script: str, folder: Path, started: list[str]) -> Part:
    async def start() -> Child:
        started.append(name)
        return await Child.start(name, ["/bin/sh", "-c", script], log=folder / f"{name}.log")

    return Part(name, start, 5.0)


async def ready() -> None:
    """Nothing is waited for."""


async def never_ready() -> None:
    await asyncio.Event().wait()


async def test_a_part_that_was_dismissed_ends_the_service_and_is_not_started_again(tmp_path: Path) -> None:
    started: list[str] = []
    parts = [
        part("other", "exec sleep 60", tmp_path, started),
        part("dismissed", f"exit {DISMISSED}", tmp_path, started),
    ]
    stopping = asyncio.Event()
    await asyncio.wait_for(run_parts(parts, stopping, ready), 30)
    assert stopping.is_set()
    assert started == ["other", "dismissed"]


async def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    started: list[str] = []
    stopping = asyncio.Event()
    marker = tmp_path / "once"
    script = f"test -e {marker} && exit {DISMISSED}; touch {marker}; exit 1"
    await asyncio.wait_for(run_parts([part("dies", script, tmp_path, started)], stopping, ready), 30)
    assert started == ["dies", "dies"]


async def test_a_part_that_hangs_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_parts, "_LOOK_S", 0.05)
    started: list[str] = []
    signs, marker = LifeSigns(tmp_path / "alive"), tmp_path / "once"
    signs.file.touch()  # an earlier run's
    script = f"test -e {marker} && exit {DISMISSED}; touch {signs.file} {marker}; kill -STOP $$"
    hangs = replace(part("hangs", script, tmp_path, started), signs=signs)
    await asyncio.wait_for(run_parts([hangs], asyncio.Event(), ready), 60)
    assert started == ["hangs", "hangs"]


async def test_a_part_that_takes_long_to_give_its_first_sign_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_parts, "_LOOK_S", 0.001)
    started: list[str] = []
    slow = part("slow", f"sleep 1; exit {DISMISSED}", tmp_path, started)
    await asyncio.wait_for(
        run_parts([replace(slow, signs=LifeSigns(tmp_path / "alive"))], asyncio.Event(), ready), 60
    )
    assert started == ["slow"]


@pytest.mark.parametrize(("code", "tries"), [(2, 1), (1, 3)])
async def test_a_part_that_cannot_start_ends_the_service_with_what_it_said(
    tmp_path: Path, code: int, tries: int
) -> None:
    started: list[str] = []
    parts = [
        part("other", "exec sleep 60", tmp_path, started),
        part("gateway", f"echo 'error: no such file'; exit {code}", tmp_path, started),
    ]
    with pytest.raises(Misconfigured, match=r"^the gateway does not start: no such file$"):
        await asyncio.wait_for(run_parts(parts, asyncio.Event(), never_ready), 30)
    assert started == ["other", *["gateway"] * tries]


async def test_a_part_that_dies_again_and_again_once_the_service_was_up_is_started_for_ever(
    tmp_path: Path,
) -> None:
    started: list[str] = []
    count = tmp_path / "count"
    script = f"echo x >>{count}; test $(wc -l <{count}) -ge 5 && exit {DISMISSED}; sleep 0.2; exit 1"
    await asyncio.wait_for(run_parts([part("dies", script, tmp_path, started)], asyncio.Event(), ready), 60)
    assert started == ["dies"] * 5
