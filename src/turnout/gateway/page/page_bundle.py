"""The page's files as `web/` builds them into `bundle/`, all read at once: no request names a path on the disk."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUNDLE = Path(__file__).parent / "bundle"


@dataclass(frozen=True, slots=True)
class PageFile:
    """`immutable`: its name has a hash of what it holds."""

    content: bytes
    gzipped: bytes
    type: str
    immutable: bool


class PageBundle:
    """Read again when it was built anew, so that whoever changes the page only reloads it."""

    def __init__(self, folder: Path = BUNDLE) -> None:
        self._folder = folder
        self._built_at = -1
        self._files: dict[str, PageFile] = {}

    def index(self) -> PageFile | None:
        """None when the page was never built."""
        try:
            built_at = (self._folder / "manifest.json").stat().st_mtime_ns
            if built_at != self._built_at:
                self._files = self._read()
                self._built_at = built_at
        except FileNotFoundError:  # also for a moment while it is being built
            pass
        return self._files.get("index.html")

    def asset(self, name: str) -> PageFile | None:
        if not self._files:
            self.index()
        return self._files.get(f"assets/{name}")

    def _read(self) -> dict[str, PageFile]:
        manifest: dict[str, Any] = json.loads((self._folder / "manifest.json").read_text())
        return {
            name: PageFile(
                (self._folder / name).read_bytes(),
                (self._folder / f"{name}.gz").read_bytes(),
                str(about["type"]),
                bool(about["immutable"]),
            )
            for name, about in manifest["files"].items()
        }
