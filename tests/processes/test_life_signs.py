"""Signs of life: whoever watches a file sees whether the loop of another process runs."""

import asyncio
from pathlib import Path

import pytest
from tests.conftest import wait_until

from turnout.processes import life_signs
from turnout.processes.life_signs import LifeSigns, giving_signs


async def test_signs_come_as_long_as_the_loop_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life_signs, "EVERY_S", 0.01)
    signs = LifeSigns(tmp_path / "alive")
    assert not signs.seen(), "there is no file yet"
    with giving_signs(signs.file):
        assert signs.seen() and not signs.seen(), "one sign counts once"
        await wait_until(signs.seen, "the next sign")
    signs.seen()
    await asyncio.sleep(0.05)
    assert not signs.seen(), "what has ended gives no sign"
    signs.forget()
    assert not signs.file.exists() and not signs.seen()


async def test_a_file_that_cannot_be_written_ends_no_work(tmp_path: Path) -> None:
    with giving_signs(tmp_path / "no such folder" / "alive"), giving_signs(None):
        await asyncio.sleep(0)
