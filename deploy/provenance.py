"""Writes where a release came from, as SLSA's provenance: which source and locked requirements, on which machine, became which files.

python -m deploy.provenance FOLDER VERSION

It reads packages, charts, and the digests of pushed images (`images/NAME.digest`) in FOLDER, and writes `provenance.json`, an in-toto
statement about all of them, and `provenance.predicate.json`, the same without its subjects, as `cosign attest` takes it for each
image. Who made it is said by the forge's own variables.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:turnout:dev-release-publish:1"
_MADE = ("*.whl", "*.tar.gz", "charts/*.tgz")
_LOCKS = ("requirements/*.txt", "web/package-lock.json")


def subjects(folder: Path) -> list[dict[str, Any]]:
    """What was made: files by their content, images by the digest that the registry gave them."""
    files = sorted(path for pattern in _MADE for path in folder.glob(pattern))
    images = {path.stem: path.read_text().strip() for path in sorted((folder / "images").glob("*.digest"))}
    return [
        *({"name": path.name, "digest": {"sha256": _sha256(path)}} for path in files),
        *(
            {"name": name, "digest": {"sha256": said.removeprefix("sha256:")}}
            for name, said in images.items()
        ),
    ]


def predicate(version: str, environ: Mapping[str, str], finished: datetime) -> dict[str, Any]:
    source = {"uri": _source(environ), "digest": {"gitCommit": _git("rev-parse", "HEAD")}}
    locks = sorted(path for pattern in _LOCKS for path in ROOT.glob(pattern))
    base = environ.get("BASE")
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"version": version, "platforms": environ.get("PLATFORMS", "")},
            "internalParameters": {},
            "resolvedDependencies": [
                source,
                *({"uri": str(p.relative_to(ROOT)), "digest": {"sha256": _sha256(p)}} for p in locks),
                *([_image(base)] if base else []),
            ],
        },
        "runDetails": {
            "builder": {"id": _builder(environ)},
            "metadata": {
                "invocationId": environ.get("GITHUB_RUN_ID", ""),
                "finishedOn": finished.strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
        },
    }


def _image(named: str) -> dict[str, Any]:
    name, _, digest = named.partition("@sha256:")
    return {"uri": f"docker://{name}", **({"digest": {"sha256": digest}} if digest else {})}


def _builder(environ: Mapping[str, str]) -> str:
    """The forge's own address, as Forgejo, Gitea and GitHub say it; a person's machine has none."""
    return environ.get("GITHUB_SERVER_URL") or "urn:turnout:somebody's-machine"


def _source(environ: Mapping[str, str]) -> str:
    server, repository = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    return f"git+{server}/{repository}" if server and repository else "urn:turnout:source"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(folder: Path, version: str) -> None:
    if _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("There are changes that no commit has: what is released could not be made again.")
    said = predicate(version, os.environ, datetime.now(UTC))
    statement = {
        "_type": STATEMENT,
        "subject": subjects(folder),
        "predicateType": PREDICATE,
        "predicate": said,
    }
    (folder / "provenance.json").write_text(json.dumps(statement, indent=1) + "\n")
    (folder / "provenance.predicate.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
