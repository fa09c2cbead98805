"""A release: its number, its notes, and what is made and published for it. `./dev release` runs it.

python -m deploy.release version X.Y.Z    names the next version: the number is in src/turnout/__init__.py, and these files follow it
python -m deploy.release notes            prints the changelog's section of this version
python -m deploy.release publish          makes everything and publishes it; with --dry-run it says what it would do

Publishing takes addresses and credentials from the environment: TWINE_REPOSITORY_URL, TWINE_USERNAME and TWINE_PASSWORD of the package index,
IMAGE_REGISTRY of images and chart (after `buildah login` and `helm registry login`).
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ("turnout", "turnout-gang", "turnout-gang-cpu")
NUMBER = re.compile(r"\d+\.\d+\.\d+")
# The file with the number, and those that follow: a pattern whose only group is the number.
SOURCE = ("src/turnout/__init__.py", r'^__version__ = "(.+)"$')
FOLLOWERS = (
    ("deploy/helm/turnout/Chart.yaml", r"^version: (.+)$"),
    ("deploy/helm/turnout/Chart.yaml", r'^appVersion: "(.+)"$'),
    ("deploy/compose/compose.yaml", r"turnout-gang-cpu:([\d.]+)\}"),
)


def version_in(file: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None, f"{file} names no version"
    return found[1]


def notes(changelog: str, version: str) -> str:
    """The changelog's section of a version, without its heading."""
    found = re.search(
        rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section for {version}: ./dev release version {version}")
    return found[1].strip() + "\n"


def name_version(version: str, today: date) -> None:
    """Writes the number into all files, and dates what was not released."""
    if not NUMBER.fullmatch(version):
        raise SystemExit(f"a version is three numbers, as 0.4.0; not {version}")
    for file, pattern in (SOURCE, *FOLLOWERS):
        path = ROOT / file
        path.write_text(_renumbered(path.read_text(), pattern, version))
    log = ROOT / "CHANGELOG.md"
    log.write_text(dated(log.read_text(), version, today))
    subprocess.run([sys.executable, "deploy/render.py"], cwd=ROOT, check=True)


def _renumbered(text: str, pattern: str, version: str) -> str:
    def changed(found: re.Match[str]) -> str:
        start, end = found.start(1) - found.start(), found.end(1) - found.start()
        return found[0][:start] + version + found[0][end:]

    return re.sub(pattern, changed, text, flags=re.MULTILINE)


def dated(changelog: str, version: str, today: date) -> str:
    return changelog.replace("## Unreleased\n", f"## Unreleased\n\n## {version} ({today})\n", 1)


def steps(version: str, registry: str) -> list[list[str]]:
    """The commands of a release, in their order: nothing is published before everything is made and tried."""
    python, chart = sys.executable, f"dist/charts/turnout-{version}.tgz"
    packages = ["--non-interactive", "dist/*.whl", "dist/*.tar.gz"]
    pushes = [
        ["buildah", "push", f"localhost/{image}:{version}", f"docker://{registry}/{image}:{version}"]
        for image in IMAGES
    ]
    return [
        ["./dev", "test"],
        ["./dev", "dist"],
        ["./dev", "docs"],
        ["deploy/build-images", *IMAGES],
        [str(Path(python).with_name("helm")), "package", "deploy/helm/turnout", "-d", "dist/charts"],
        # Weights that did not change are there already.
        ["env", "PYTHONPATH=.venv/release", python, "-m", "twine", "upload", "--skip-existing", *packages],
        *pushes,
        [str(Path(python).with_name("helm")), "push", chart, f"oci://{registry}/charts"],
        ["git", "tag", "-a", f"v{version}", "-F", "dist/notes.md"],
        ["git", "push", "origin", f"v{version}"],
    ]


def publish(*, dry_run: bool) -> None:
    version = version_in(*SOURCE)
    behind = [file for file, pattern in FOLLOWERS if version_in(file, pattern) != version]
    if behind:
        raise SystemExit(f"{', '.join(behind)} is not of {version}: ./dev release version {version}")
    text = notes((ROOT / "CHANGELOG.md").read_text(), version)
    registry = os.environ.get("IMAGE_REGISTRY", "")
    if not registry and not dry_run:
        raise SystemExit("IMAGE_REGISTRY names the registry of images and chart")
    for step in steps(version, registry or "IMAGE_REGISTRY"):
        print(f"+ {shlex.join(step)}", flush=True)
        if dry_run:
            continue
        subprocess.run(_with_files(step), cwd=ROOT, check=True)
        if step == ["./dev", "dist"]:  # which empties the folder
            (ROOT / "dist" / "notes.md").write_text(text)


def _with_files(step: Sequence[str]) -> list[str]:
    return [name for word in step for name in (sorted(map(str, ROOT.glob(word))) if "*" in word else [word])]


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev release", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version").add_argument("number")
    commands.add_parser("notes")
    commands.add_parser("publish").add_argument("--dry-run", action="store_true")
    asked = parser.parse_args()
    match asked.command:
        case "version":
            name_version(asked.number, datetime.now(UTC).date())
        case "notes":
            print(notes((ROOT / "CHANGELOG.md").read_text(), version_in(*SOURCE)), end="")
        case _:
            publish(dry_run=asked.dry_run)


if __name__ == "__main__":
    main()
