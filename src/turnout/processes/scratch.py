"""Folders for what a process needs only while it lives. A process that is killed leaves its own behind; the next one that looks
there removes it, because nobody holds its lock any more."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = "lock"
_GATE = ".lock"  # who makes or removes folders holds it


@contextmanager
def scratch_folder(base: Path) -> Generator[Path]:
    """A private folder under `base`, until the end of this context or of this process and its forks."""
    with _gate(base):
        _sweep(base)
        folder = Path(tempfile.mkdtemp(dir=base))
        held = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def sweep(base: Path) -> None:
    """Removes what processes left that were killed."""
    with _gate(base):
        _sweep(base)


@contextmanager
def _gate(base: Path) -> Generator[None]:
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    gate = os.open(base / _GATE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield
    finally:
        os.close(gate)


def _sweep(base: Path) -> None:
    for folder in base.iterdir():
        if not folder.is_dir():
            continue
        held = -1
        with suppress(OSError):  # held by a process that lives, or being removed
            held = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        if held >= 0:
            os.close(held)
