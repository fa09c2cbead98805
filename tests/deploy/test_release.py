"""A release has one number, notes of its own, and publishes nothing before everything was made."""

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import yaml

from deploy import release
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
    assert [line for line in said[:made] if "push" in line or "tag" in line] == []


def test_the_forges_pipeline_calls_dev_and_nothing_else() -> None:
    pipeline = yaml.safe_load((release.ROOT / ".forgejo" / "workflows" / "release.yaml").read_text())
    lines = [step["run"] for job in pipeline["jobs"].values() for step in job["steps"] if "run" in step]
    assert lines and all(line.startswith("./dev ") for line in lines)
