"""A release: its number, its notes, and what is made and published for it. `./dev release` runs it.

python -m deploy.release version X.Y.Z    names the next version: the number is in src/turnout/__init__.py, and these files follow it
python -m deploy.release notes            prints the changelog's section of this version
python -m deploy.release publish          makes everything and publishes it; with --dry-run it says what it would do

Publishing takes addresses and credentials from the environment: TWINE_REPOSITORY_URL, TWINE_USERNAME and TWINE_PASSWORD of the package index,
IMAGE_REGISTRY of images and chart (after `buildah login` and `helm registry login`), COSIGN_PRIVATE_KEY and COSIGN_PASSWORD to sign with.
BASE, VLLM and PLATFORMS are those of deploy/build-images.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ("turnout", "turnout-gang", "turnout-gang-cpu", "turnout-worker")
SIGN = ("--yes", "--key", "env://COSIGN_PRIVATE_KEY")
NUMBER = re.compile(r"\d+\.\d+\.\d+")
PAGES = ("install.md", "zh/install.md", "kubernetes.md", "zh/kubernetes.md")
NAMING_IMAGES = ("README.md", "README.zh-CN.md", *(f"docs/{page}" for page in PAGES))
# The file with the number, and those that follow: a pattern whose only group is the number.
SOURCE = ("src/turnout/__init__.py", r'^__version__ = "(.+)"$')
FOLLOWERS = (
    ("deploy/helm/turnout/Chart.yaml", r"^version: (.+)$"),
    ("deploy/helm/turnout/Chart.yaml", r'^appVersion: "(.+)"$'),
    ("deploy/compose/compose.yaml", r"turnout-gang-cpu:([\d.]+)\}"),
    *((page, r"turnout-gang(?:-cpu)?:(\d[\d.]+\d)") for page in NAMING_IMAGES),
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
    pushed = ["buildah", "manifest", "push", "--all", "--digestfile"]
    pushes = [
        [
            *pushed,
            f"dist/images/{image}.digest",
            f"localhost/{image}:{version}-list",
            f"docker://{registry}/{image}:{version}",
        ]
        for image in IMAGES
    ]
    signatures = [step for image in IMAGES for step in _signed(image, registry)]
    return [
        ["./dev", "test"],
        ["./dev", "dist"],
        ["./dev", "docs"],
        ["deploy/build-images", *IMAGES],
        [str(Path(python).with_name("helm")), "package", "deploy/helm/turnout", "-d", "dist/charts"],
        # Weights that did not change are there already.
        ["env", "PYTHONPATH=.venv/release", python, "-m", "twine", "upload", "--skip-existing", *packages],
        *pushes,
        [python, "-m", "deploy.provenance", "dist", version],
        *signatures,
        ["cosign", "sign-blob", *SIGN, "--bundle", "dist/provenance.json.bundle", "dist/provenance.json"],
        [str(Path(python).with_name("helm")), "push", chart, f"oci://{registry}/charts"],
        ["git", "tag", "-a", f"v{version}", "-F", "dist/notes.md"],
        ["git", "push", "origin", f"v{version}"],
    ]


def _signed(image: str, registry: str) -> list[list[str]]:
    """An image is signed by its digest, and told of: what is in it, and where it came from."""
    pushed, sbom = f"{registry}/{image}@{{dist/images/{image}.digest}}", f"dist/images/{image}.sbom.json"
    came_from = "dist/provenance.predicate.json"
    return [
        ["cosign", "sign", *SIGN, pushed],
        ["cosign", "attest", *SIGN, "--type", "cyclonedx", "--predicate", sbom, pushed],
        ["cosign", "attest", *SIGN, "--type", "slsaprovenance1", "--predicate", came_from, pushed],
    ]


def obstacles(
    version: str, changelog: str, changed: str, tags: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Why nothing may be published: said before the first step, and not after half of them. `changed` is what git says of files that
    no commit has."""
    found: list[str] = []
    if re.search(r"^## Unreleased\n+(?!## )\S", changelog, re.MULTILINE):
        found.append("CHANGELOG.md has what no version has yet: ./dev release version X.Y.Z")
    if f"v{version}" in tags:
        found.append(f"v{version} is released already: ./dev release version X.Y.Z")
    if changed:
        found.append("files are changed that no commit has")
    if not environ.get("IMAGE_REGISTRY"):
        found.append("IMAGE_REGISTRY names the registry of images and chart")
    if not environ.get("COSIGN_PRIVATE_KEY"):
        found.append("images are signed: COSIGN_PRIVATE_KEY is the key")
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def publish(*, dry_run: bool) -> None:
    version, changelog = version_in(*SOURCE), (ROOT / "CHANGELOG.md").read_text()
    behind = [file for file, pattern in FOLLOWERS if version_in(file, pattern) != version]
    if behind:
        raise SystemExit(f"{', '.join(behind)} is not of {version}: ./dev release version {version}")
    text = notes(changelog, version)
    registry = os.environ.get("IMAGE_REGISTRY", "")
    refused = obstacles(
        version, changelog, _git("status", "--porcelain"), _git("tag", "-l").split(), os.environ
    )
    if shutil.which("cosign") is None:
        refused.append("images are signed: cosign is not installed")
    for why in refused:
        print(f"nothing would be published: {why}" if dry_run else why, file=sys.stderr)
    if refused and not dry_run:
        raise SystemExit(1)
    for step in steps(version, registry or "IMAGE_REGISTRY"):
        print(f"+ {shlex.join(step)}", flush=True)
        if dry_run:
            continue
        subprocess.run(_with_files(step), cwd=ROOT, check=True)
        if step == ["./dev", "dist"]:  # which empties the folder
            (ROOT / "dist" / "notes.md").write_text(text)


def _with_files(step: Sequence[str]) -> list[str]:
    """With the files that a pattern names, and the content of files in braces."""
    return [
        name
        for word in step
        for name in (sorted(map(str, ROOT.glob(word))) if "*" in word else [_read(word)])
    ]


def _read(word: str) -> str:
    return re.sub(r"\{(.+?)\}", lambda found: (ROOT / found[1]).read_text().strip(), word)


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
