"""The blocks of code in the documentation, and a shell that runs those that are meant to be run."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.pace import patient

ROOT = Path(__file__).parents[1]
RUN = {"sh", "python"}  # languages whose blocks are run, unless marked


@dataclass(frozen=True)
class Block:
    """A fenced block of code; `reason` says why it is not run."""

    page: Path
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.splitlines()[0][:60]}"


def blocks(page: Path) -> Iterator[Block]:
    found = re.finditer(
        r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n\n?)?^(?P<indent> *)```(?P<lang>\w*)[^\n]*\n(?P<text>.*?)^ *```$",
        page.read_text(),
        re.DOTALL | re.MULTILINE,
    )
    for block in found:
        yield Block(page, block["lang"], block["text"], block["why"])


def run_blocks(
    page: Path, folder: Path, url: str, api_key: str, python: Path = Path(sys.executable)
) -> list[str]:
    """Runs a page's blocks in order against a service, as someone who pastes them, with what is installed for `python`; returns what
    was run."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    shim = programs / "turnout"
    shim.write_text(f'#!/bin/sh\nexec {python} -m turnout "$@"\n')
    shim.chmod(0o755)
    environ = {**os.environ, "TURNOUT_URL": url, "TURNOUT_API_KEY": api_key}
    environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    ran: list[str] = []
    for block in blocks(page):
        if block.language not in RUN or block.reason is not None:
            continue
        text = block.text.replace("http://127.0.0.1:8000", url).replace("tk-…", api_key)
        start = ["bash", "-euc"] if block.language == "sh" else [str(python), "-c"]
        done = subprocess.run(
            [*start, text],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=patient(200),
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        ran.append(block.text)
    return ran
