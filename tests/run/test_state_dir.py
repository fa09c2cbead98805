"""A start that cannot write says so in one line; and the secrets that lie in a state directory."""

import os
import resource
import subprocess
import sys
from pathlib import Path

from tests.conftest import Stores
from tests.pace import patient

from turnout.run.config import load
from turnout.run.open_stores import find_webhook_secret
from turnout.run.state_dir import make_private, write_private


def little_room() -> None:
    """As on a full disk, for this process alone: files may not grow past 64 KiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def test_up_says_in_one_line_that_the_disk_is_full(tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = subprocess.run(
        [sys.executable, "-m", "turnout", "up", "--state-dir", str(state), "--port", "0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=patient(60),
        cwd=tmp_path,
        env=dict(os.environ),
        preexec_fn=little_room,
    )
    wanted = (
        f"error: {state} cannot be written: File too large; make room there, or give another --state-dir\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", wanted)
    assert list(state.iterdir()) == [], "nothing is left behind"


def test_a_directory_that_was_there_becomes_private(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    make_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    make_private(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_directory_for_everyone_is_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private(shared)
    assert shared.stat().st_mode & 0o7777 == 0o1777


async def test_a_service_has_one_webhook_secret_wherever_its_manager_runs(
    stores: Stores, tmp_path: Path
) -> None:
    here, there = (load({"state_dir": str(tmp_path / name)}, {}).config for name in ("here", "there"))
    made = await find_webhook_secret(here, stores.webhook_secrets)
    assert made.startswith("whsec_")
    assert await find_webhook_secret(there, stores.webhook_secrets) == made
    assert {(config.state_dir / "webhook-secret").read_text() for config in (here, there)} == {made}


async def test_the_webhook_secret_of_an_earlier_version_stays(stores: Stores, tmp_path: Path) -> None:
    config = load({"state_dir": str(tmp_path)}, {}).config
    write_private(tmp_path / "webhook-secret", "whsec_b2xk")
    assert await find_webhook_secret(config, stores.webhook_secrets) == "whsec_b2xk"
