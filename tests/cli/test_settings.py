"""Where settings and servers come from, and that starting the command stays cheap."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.scripted import TOKEN, ScriptedGateway

from turnout.cli.config_command import masked
from turnout.cli.options import find_server
from turnout.domain.errors import Misconfigured


def shown(cli: Cli, *args: str, **env: str) -> dict[str, Any]:
    done = cli("config", "--json", *args, **env)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_later_sources_win_and_are_named(bare_cli: Cli, tmp_path: Path) -> None:
    assert shown(bare_cli)["port"] == {"value": 8000, "origin": "default"}
    (tmp_path / "turnout.yaml").write_text("port: 8001\nlease_s: 9\n")
    found = shown(bare_cli)
    assert found["port"] == {"value": 8001, "origin": "turnout.yaml"}
    found = shown(bare_cli, TURNOUT_PORT="8002")
    assert found["port"] == {"value": 8002, "origin": "TURNOUT_PORT"}
    assert found["lease_s"] == {"value": 9.0, "origin": "turnout.yaml"}
    found = shown(bare_cli, "--state-dir", str(tmp_path / "mine"))
    assert found["state_dir"] == {"value": str(tmp_path / "mine"), "origin": "--state-dir"}
    other = tmp_path / "other.yaml"
    other.write_text("port: 8003\n")
    assert shown(bare_cli, "--config", str(other), TURNOUT_PORT="8002")["port"]["value"] == 8002


def test_shared_options_may_stand_before_or_after_the_command(bare_cli: Cli, tmp_path: Path) -> None:
    before = json.loads(bare_cli("--state-dir", str(tmp_path / "mine"), "config", "--json").out)
    assert before["state_dir"]["value"] == str(tmp_path / "mine")


def test_the_table_shows_models_and_hides_secrets(bare_cli: Cli) -> None:
    done = bare_cli(
        "config", TURNOUT_REDIS_URL="redis://me:hush@db:6379/0", TURNOUT_WEBHOOK_SECRET="whsec_hush"
    )
    assert "redis://me:•••@db:6379/0" in done.out and "hush" not in done.out
    assert "models.wan-tiny-t2v" in done.out and "2 ranks" in done.out


def test_a_bad_setting_is_one_line_and_exit_2(bare_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "turnout.yaml").write_text("prot: 1\n")
    done = bare_cli("config")
    assert done.code == 2
    assert done.err.startswith("error: turnout.yaml: unknown setting 'prot'; known: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("secret", "seen"),
    [
        (None, None),
        ("whsec_x", "•••"),
        ("redis://:pw@h:1/0", "redis://:•••@h:1/0"),
        ("redis://h:1/0", "redis://h:1/0"),
        ("unix:///run/r.sock?password=pw", "•••"),
        ("redis://[pw", "•••"),
    ],
)
def test_secrets_are_masked(secret: str | None, seen: str | None) -> None:
    assert masked(secret) == seen


class Left:
    """A state directory with what `turnout up` left in it."""

    def __init__(self, directory: Path, text: str | None) -> None:
        if text is not None:
            (directory / "service.json").write_text(text)
        self.config = SimpleNamespace(state_dir=directory, port=8123)

    def find(self, url: str | None = None, key: str | None = None, **environ: str) -> tuple[str, str | None]:
        server = find_server(url, key, environ, lambda: self.config)
        return server.url, server.api_key


SERVICE = json.dumps({"url": "http://127.0.0.1:9000", "api_key": "left", "pid": 1})


def test_a_server_is_found_by_flag_then_environment_then_file_then_default(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert Left(empty, None).find() == ("http://127.0.0.1:8123", None)
    left = Left(tmp_path, SERVICE)
    assert left.find() == ("http://127.0.0.1:9000", "left")
    assert left.find(TURNOUT_API_KEY="mine") == ("http://127.0.0.1:9000", "mine")
    assert left.find(TURNOUT_URL="http://a:1", TURNOUT_API_KEY="mine") == ("http://a:1", "mine")
    assert left.find("https://b/v1/", "flag", TURNOUT_URL="http://a:1", TURNOUT_API_KEY="mine") == (
        "https://b",
        "flag",
    )


def test_the_key_of_a_local_server_goes_nowhere_else(tmp_path: Path) -> None:
    left = Left(tmp_path, SERVICE)
    assert left.find("http://elsewhere") == ("http://elsewhere", None)
    assert left.find(TURNOUT_URL="http://elsewhere") == ("http://elsewhere", None)


@pytest.mark.parametrize("url", ["ftp://a", "127.0.0.1:8000", "http://", "http://user:pw@host"])
def test_only_plain_http_urls_are_taken(tmp_path: Path, url: str) -> None:
    with pytest.raises(Misconfigured, match="--url"):
        Left(tmp_path, None).find(url)


@pytest.mark.parametrize("text", ["", "[]", '{"api_key": "x"}', '{"url": 3}'])
def test_a_broken_service_file_says_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misconfigured, match=r"service\.json"):
        Left(tmp_path, text).find()


def test_what_up_left_is_enough_to_connect(bare_cli: Cli, gateway: ScriptedGateway, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "service.json").write_text(
        json.dumps({"url": gateway.url, "api_key": TOKEN, "pid": 1})
    )
    assert bare_cli("tasks", "list").code == 0


def test_help_has_examples_and_version_is_known(bare_cli: Cli) -> None:
    assert "turnout generate" in bare_cli("--help").out
    assert bare_cli("--version").out.startswith("turnout 0.")


def test_starting_loads_nothing_heavy() -> None:
    heavy = {"torch", "redis", "httpx", "fastapi", "rich.progress", "turnout.config", "yaml"}
    code = f"import sys, turnout.cli.main; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout.strip() == "[]"
