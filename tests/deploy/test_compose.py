"""The Compose file: what it mounts is there, what it sets is known, and what it starts takes its arguments. No Docker is needed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnout import __version__
from turnout.run.config import load

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
EXAMPLE = (FOLDER / "env.example").read_text()


def test_plain_is_the_service_alone_and_profiles_add_the_rest() -> None:
    profiles = {name: tuple(service.get("profiles", ())) for name, service in SERVICES.items()}
    monitoring = ("monitoring",)
    assert profiles == {
        "turnout": (),
        "s3": ("s3",),
        "prometheus": monitoring,
        "grafana": monitoring,
        "caddy": ("tls",),
    }


def test_its_image_is_of_this_version() -> None:
    assert SERVICES["turnout"]["image"].endswith(f":{__version__}}}")


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_is_there_and_only_tls_listens_for_others(name: str) -> None:
    service = SERVICES[name]
    mounts = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", one).split(":")[0] for one in service["volumes"]]
    assert [one for one in mounts if one.startswith(".") and not (FOLDER / one).exists()] == []
    assert service["cap_drop"] == ["ALL"]
    if name != "caddy":
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_every_setting_of_the_example_is_known() -> None:
    given = dict(re.findall(r"^#?([A-Z0-9_]+)=(\S*)", EXAMPLE, re.MULTILINE))
    used = set(re.findall(r"\$\{(\w+)", (FOLDER / "compose.yaml").read_text()))
    assert used <= given.keys(), "the example has all of them"
    ours = {name: value for name, value in given.items() if name.startswith("TURNOUT_") and name not in used}
    assert len(ours) == 3
    config = load({}, ours, FOLDER / "config" / "turnout.yaml").config
    assert config.objects.blobs == "s3://turnout/videos" and config.models
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GRAFANA_PASSWORD", "SITE"} <= used


def test_what_the_file_itself_reads_from_env_changes_nothing_inside() -> None:
    """The service gets every line of .env: TURNOUT_PORT, which chooses the machine's port, would move the container's."""
    text = (FOLDER / "compose.yaml").read_text()
    lines = {name: "9000" for name in re.findall(r"\$\{(TURNOUT_\w+)", text)}
    assert "TURNOUT_PORT" in lines
    up, *words = SERVICES["turnout"]["command"]
    flags = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    assert up == "up"
    config = load(flags, lines, FOLDER / "config" / "turnout.yaml").config
    inside = SERVICES["turnout"]["ports"][0].rpartition(":")[2]
    assert (config.gateway.host, str(config.gateway.port)) == ("0.0.0.0", inside)


def test_the_object_store_knows_its_arguments() -> None:
    program, *words = SERVICES["s3"]["command"]
    weed = Path(sys.executable).with_name("weed")
    told = subprocess.run([weed, program, "-h"], capture_output=True, text=True, check=False, timeout=60)
    known = set(re.findall(r"^  -([\w.]+)", told.stdout + told.stderr, re.MULTILINE))
    assert {word[1:].split("=")[0] for word in words} <= known
    assert f"-s3.port={EXAMPLE.split('http://s3:')[1].split()[0]}" in words


def test_prometheus_takes_its_settings_and_our_rules(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "prometheus.yml", tmp_path)
    shutil.copy(FOLDER.parent / "observability" / "rules.yaml", tmp_path)
    words = ["promtool", "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
