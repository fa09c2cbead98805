"""A model that renders no further than a test lets it (`held_engine`). Ranks import this file: it imports nothing of the tests,
and no torch."""

import time
from pathlib import Path
from typing import Any

_EVERY = 10**9
_LOOK_S = 0.02


class Gate:
    """How many steps tasks may do, and how long each takes. Of a folder that nothing was said of: all, at once."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "gate"

    def hold(self, at: int, pace_s: float = 0.0) -> None:
        """No task does more than `at` steps."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{at} {pace_s}")
        draft.rename(self._file)

    def let_on(self) -> None:
        """One more step: ranks leave between two."""
        at, pace_s = self._said()
        self.hold(at + 1, pace_s)

    def open(self, pace_s: float = 0.0) -> None:
        self.hold(_EVERY, pace_s)

    def wait(self, step: int) -> None:
        """Returns when a task that has done so many steps may do the next."""
        time.sleep(self._said()[1])
        while step >= self._said()[0]:
            time.sleep(_LOOK_S)

    def _said(self) -> tuple[int, float]:
        at, pace_s = self._file.read_text().split() if self._file.exists() else (_EVERY, 0)
        return int(at), float(pace_s)


def held_model(folder: Path, **fields: Any) -> dict[str, Any]:
    """The declaration of a model that the gate in `folder` holds."""
    rules = {"default_size": "64x64", "default_frames": 9, "steps": 8, "fps": 8}
    engine = {"video_engine": "tests.held_engine:HeldEngine", "weights": str(folder), "rules": rules}
    return {**engine, "memory_bytes": 300 * 2**20, **fields}
