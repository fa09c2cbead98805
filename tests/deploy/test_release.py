"""A release has one number, notes of its own, and publishes nothing before everything was made."""

import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml

from deploy import provenance, release
from turnout import __version__

CHANGELOG = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-11-16)\n\n- older\n- oldest\n"


@pytest.mark.parametrize(("file", "pattern"), [release.SOURCE, *release.FOLLOWERS])
def test_every_file_is_of_the_one_version(file: str, pattern: str) -> None:
    assert release.version_in(file, pattern) == __version__


def test_the_next_version_takes_what_was_not_released() -> None:
    named = release.dated(CHANGELOG, "0.3.0", date(2026, 11, 18))
    assert release.notes(named, "0.3.0") == "- new\n"
    assert release.notes(named, "0.2.0") == "- older\n- oldest\n"
    with pytest.raises(SystemExit, match=r"no section for 0\.4\.0"):
        release.notes(named, "0.4.0")


def test_naming_a_version_changes_the_source_and_all_that_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {file for file, _ in (release.SOURCE, *release.FOLLOWERS)} | {"CHANGELOG.md"}
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((release.ROOT / file).read_text())
    (tmp_path / "deploy" / "render.py").write_text(
        ""
    )  # it writes what follows the chart, and has a test of its own
    monkeypatch.setattr(release, "ROOT", tmp_path)
    release.name_version("7.8.9", date(2026, 11, 18))
    named = {release.version_in(file, pattern) for file, pattern in (release.SOURCE, *release.FOLLOWERS)}
    assert named == {"7.8.9"}
    assert "## Unreleased\n\n## 7.8.9 (2026-11-18)\n" in (tmp_path / "CHANGELOG.md").read_text()
    with pytest.raises(SystemExit, match="three numbers"):
        release.name_version("7.8", date(2026, 11, 18))


def test_a_dry_run_says_every_step_and_does_none() -> None:
    words = [sys.executable, "-m", "deploy.release", "publish", "--dry-run"]
    done = subprocess.run(words, cwd=release.ROOT, capture_output=True, text=True, check=True, timeout=60)
    said = done.stdout.splitlines()
    assert said[:2] == ["+ ./dev test", "+ ./dev dist"] and said[-1] == f"+ git push origin v{__version__}"
    made = next(i for i, line in enumerate(said) if "twine upload" in line)
    assert [line for line in said[:made] if "push" in line or "tag" in line or "cosign" in line] == []
    for image in release.IMAGES:
        by_digest = f"'IMAGE_REGISTRY/{image}@{{dist/images/{image}.digest}}'"
        told = [line for line in said if line.endswith(by_digest)]
        assert ["sign --yes" in line for line in told] == [True, False, False], "signed, and two attestations"
        assert all("--key env://COSIGN_PRIVATE_KEY" in line for line in told)


READY = {"IMAGE_REGISTRY": "registry.example/team", "COSIGN_PRIVATE_KEY": "key"}


def test_nothing_stands_in_the_way_of_a_version_that_was_just_named() -> None:
    named = release.dated(CHANGELOG, "0.3.0", date(2026, 11, 18))
    assert release.obstacles("0.3.0", named, "", ["v0.2.0"], READY) == []


@pytest.mark.parametrize(
    ("changed", "tags", "environ", "said"),
    [
        (" M dev\n", [], READY, "no commit has"),
        ("", ["v0.3.0"], READY, "released already"),
        ("", [], {**READY, "IMAGE_REGISTRY": ""}, "IMAGE_REGISTRY"),
        ("", [], {"IMAGE_REGISTRY": "r"}, "COSIGN_PRIVATE_KEY"),
    ],
)
def test_what_would_stop_a_release_half_way_is_said_before_its_first_step(
    changed: str, tags: list[str], environ: dict[str, str], said: str
) -> None:
    named = release.dated(CHANGELOG, "0.3.0", date(2026, 11, 18))
    (why,) = release.obstacles("0.3.0", named, changed, tags, environ)
    assert said in why


def test_changes_without_a_number_are_not_published_under_the_last_one() -> None:
    (why,) = release.obstacles("0.2.0", CHANGELOG, "", [], READY)
    assert "./dev release version" in why


def test_a_release_that_is_refused_takes_no_step() -> None:
    words = [sys.executable, "-m", "deploy.release", "publish"]
    environ = {name: value for name, value in os.environ.items() if name not in READY}
    done = subprocess.run(
        words, cwd=release.ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1 and done.stdout == "" and "IMAGE_REGISTRY" in done.stderr


def test_a_digest_is_read_when_its_step_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "turnout.digest").write_text(f"sha256:{'a' * 64}\n")
    (tmp_path / "a.whl").touch()
    read = release._with_files(["sign", "registry/turnout@{turnout.digest}", "*.whl"])
    assert read == ["sign", f"registry/turnout@sha256:{'a' * 64}", str(tmp_path / "a.whl")]


def test_the_provenance_names_what_was_made_of_what_and_where(tmp_path: Path) -> None:
    for name, content in {"turnout-7.whl": b"wheel", "turnout-7.tar.gz": b"source", "notes.md": b"-"}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "turnout.digest").write_text(f"sha256:{'b' * 64}\n")
    made = {each["name"]: each["digest"]["sha256"] for each in provenance.subjects(tmp_path)}
    wheel = hashlib.sha256(b"wheel").hexdigest()
    assert made == {
        "turnout-7.whl": wheel,
        "turnout-7.tar.gz": hashlib.sha256(b"source").hexdigest(),
        "turnout": "b" * 64,
    }
    forge = {
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_REPOSITORY": "a/turnout",
        "GITHUB_RUN_ID": "9",
    }
    said = provenance.predicate(
        "7.0.0", {**forge, "BASE": f"debian@sha256:{'c' * 64}"}, datetime(2026, 1, 2, tzinfo=UTC)
    )
    built = said["buildDefinition"]
    assert built["externalParameters"]["version"] == "7.0.0"
    source, *rest = built["resolvedDependencies"]
    assert source["uri"] == "git+https://forge.example/a/turnout" and len(source["digest"]["gitCommit"]) == 40
    names = {each["uri"] for each in rest}
    assert {
        "requirements/run.txt",
        "requirements/cuda.txt",
        "web/package-lock.json",
        "docker://debian",
    } <= names
    assert all(len(each["digest"]["sha256"]) == 64 for each in rest)
    assert said["runDetails"]["builder"]["id"] == "https://forge.example"
    assert said["runDetails"]["metadata"] == {"invocationId": "9", "finishedOn": "2026-01-02T00:00:00Z"}
    assert "PASSWORD" not in json.dumps(said)


def test_what_is_released_must_be_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_git", lambda *words: " M dev" if "status" in words else "a" * 40)
    with pytest.raises(SystemExit, match="no commit has"):
        provenance.main(tmp_path, "7.0.0")
    monkeypatch.setattr(provenance, "_git", lambda *words: "" if "status" in words else "a" * 40)
    provenance.main(tmp_path, "7.0.0")
    statement = json.loads((tmp_path / "provenance.json").read_text())
    assert (statement["_type"], statement["predicateType"]) == (provenance.STATEMENT, provenance.PREDICATE)
    assert statement["predicate"] == json.loads((tmp_path / "provenance.predicate.json").read_text())


def test_everything_that_images_download_is_locked_by_hash() -> None:
    """But for torch on CPUs, whose builds are no index's that can be locked, and for what Debian signs."""
    lines = (release.ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    parts = [part for line in lines if line[:1] != "#" for part in line.split("&&")]
    installs = [part for part in parts if " install " in part and "apt-get" not in part]
    assert len(installs) > 5
    for part in installs:
        locked = "--require-hashes" in part or "-c requirements/" in part or "$locked /dist" in part
        assert locked or "--no-deps --reinstall /dist" in part or "locked=" in part, part
    for name in ("run", "dev", "nodeps", "tools", "release", "cuda"):
        text = (release.ROOT / "requirements" / f"{name}.txt").read_text()
        named = [line for line in text.splitlines() if line and line[0] not in " #"]
        assert named and all(line.endswith("\\") for line in named), f"{name}.txt: each has hashes below it"
    torch = (release.ROOT / "requirements" / "torch.txt").read_text().strip()
    assert torch in (release.ROOT / "requirements" / "cuda.txt").read_text(), "./dev lock"


def test_the_forges_pipeline_calls_dev_and_nothing_else() -> None:
    pipeline = yaml.safe_load((release.ROOT / ".forgejo" / "workflows" / "release.yaml").read_text())
    lines = [step["run"] for job in pipeline["jobs"].values() for step in job["steps"] if "run" in step]
    assert lines and all(line.startswith("./dev ") for line in lines)
