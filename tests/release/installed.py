"""Environments that hold what a user installs, and nothing else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
LIMIT_S = 900
# What a checkout would lend to an environment, and what the developer's own service would.
_OURS = ("PYTHONPATH", "VIRTUAL_ENV", "TURNOUT_", "UV_", "PIP_FIND_LINKS")


def environ(packages: Path) -> dict[str, str]:
    """The settings of uv and pip under which `packages` is asked first. Local wheels of this machine are asked, too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    links = [str(packages), *os.environ.get("PIP_FIND_LINKS", "").split()]
    kept |= {"UV_FIND_LINKS": ",".join(links), "PIP_FIND_LINKS": " ".join(links), "UV_SYSTEM_CERTS": "1"}
    if len(links) > 1:  # a torch of this machine's own
        kept["UV_CONSTRAINT"] = str(ROOT / "requirements" / "torch.txt")
    elif shutil.which("nvidia-smi") is None:
        kept["UV_TORCH_BACKEND"] = "cpu"
    return kept


def call(words: Sequence[str | Path], folder: Path, env: Mapping[str, str]) -> str:
    """What a command printed; it must end well."""
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        told = f"{done.stdout}\n{done.stderr}"[-3000:]
        raise AssertionError(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{told}")
    return done.stdout + done.stderr


class Installed:
    """An empty environment in `folder`, and what is installed there."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        self.folder, self.home = folder, folder / "env"
        self.environ = {
            **env,
            "TURNOUT_STATE_DIR": str(folder / "state"),
            "PATH": f"{self.home}/bin:{os.environ['PATH']}",
        }
        self.uv("venv", "--python", sys.executable, self.home)

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def uv(self, *words: str | Path) -> str:
        return call([UV, "-q", *words], self.folder, self.environ)

    def install(self, *what: str | Path) -> None:
        self.uv("pip", "install", "--python", self.python, *what)

    def run(self, *words: str | Path) -> str:
        return call(words, self.folder, self.environ)

    def fails(self, *words: str | Path) -> str:
        """What a command said that must fail."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode, f"{' '.join(map(str, words))} did not fail: {done.stdout}"
        return done.stdout + done.stderr

    @property
    def megabytes(self) -> int:
        return sum(file.stat().st_size for file in self.home.rglob("*") if file.is_file()) // 10**6

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
