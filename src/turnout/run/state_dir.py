"""The private files of a state directory: its lock and its secrets."""

import fcntl
import os
import stat
from pathlib import Path

from turnout.errors import Misconfigured

_PROBE_BYTES = 2**20


def make_writable(state_dir: Path) -> None:
    """Makes the directory, and writes a little more there than a start needs; raises Misconfigured if that fails."""
    probe = state_dir / f".probe-{os.getpid()}"
    try:
        make_private(state_dir)
        try:
            with probe.open("xb") as file:
                file.write(bytes(_PROBE_BYTES))
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as err:
        raise Misconfigured(
            f"{state_dir} cannot be written: {err.strerror}; make room there, or give another --state-dir"
        ) from err


def write_private(path: Path, content: str) -> None:
    """Only the owner can read it, from the first byte on; replaced in one move."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(content)
    fresh.replace(path)


def make_private(directory: Path) -> None:
    """Only the owner may look into it, also if it was there before. A directory that is shared on purpose (another
    user's, or one like /tmp) is left as it is."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX:
        directory.chmod(0o700)


class alone_on:
    """Holds a directory for this process; raises Misconfigured when another does."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "lock"
        self._file = self._path.open("a+")

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            self._file.seek(0)
            raise Misconfigured(
                f"Turnout is already running on {self._path.parent} (pid {self._file.read().strip()}); "
                "use it, stop it, or give another --state-dir (a worker: another --id)"
            ) from err
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.close()


def find_holder(directory: Path) -> int | None:
    """The process that holds a directory by `alone_on` now."""
    try:
        with (directory / "lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0) or None
    except (FileNotFoundError, ValueError):
        pass
    return None
