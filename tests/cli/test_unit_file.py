"""Units of systemd: the command that was typed, in this installation and folder, and no secret."""

import configparser
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.pace import patient

from turnout.cli.unit_file import unit_file
from turnout.errors import Misconfigured


def service_of(unit: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit)
    assert parser["Install"]["WantedBy"] == "multi-user.target"
    return parser["Service"]


def test_the_unit_of_up_runs_the_same_command_on_the_same_data(bare_cli: Cli, tmp_path: Path) -> None:
    printed = bare_cli.start("up", "--port", "0", "--print-unit").finish()
    assert printed.code == 0, printed.err
    service = service_of(printed.out)
    words = shlex.split(service["ExecStart"])
    assert words[-5:] == ["up", "--port", "0", "--state-dir", str(tmp_path / "state")]
    assert service["WorkingDirectory"] == str(bare_cli.cwd)
    assert int(service["TimeoutStopSec"]) > 30
    shown = subprocess.run(
        [*words, "--help"], capture_output=True, text=True, check=True, timeout=patient(60)
    )
    assert "Run the whole service on this machine" in shown.stdout


def test_the_unit_of_a_worker_takes_its_key_from_a_file_alone(bare_cli: Cli, tmp_path: Path) -> None:
    key = tmp_path / "key"
    asked = ("worker", "--join", "https://gateway.example", "--tunnel", "--print-unit")
    assert bare_cli(*asked, "--token", "wk-secret").code == 2
    assert bare_cli(*asked, TURNOUT_JOIN_TOKEN="wk-secret").code == 2
    printed = bare_cli.start(*asked, "--token-file", str(key)).finish()
    assert printed.code == 0, printed.err
    assert f"--token-file {key}" in service_of(printed.out)["ExecStart"]


def test_a_unit_runs_in_the_foreground_of_systemd() -> None:
    for word in ("-d", "--detach"):
        words = shlex.split(
            service_of(unit_file("x", ["up", word, "--print-unit"], Path("/s"), 0))["ExecStart"]
        )
        assert words[1:] == ["-m", "turnout", "up", "--state-dir", "/s"]


def test_a_demo_is_no_service(bare_cli: Cli) -> None:
    refused = bare_cli.start("up", "--demo", "a boat", "--print-unit").finish()
    assert refused.code == 2 and "--demo" in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ["--redis-url", "redis://:hunter2@r:6379"],
        ["--redis-url=rediss://me:hunter2@r:6379"],
        ["--key", "tk-hunter2"],
        ["--key=tk-hunter2"],
    ],
)
def test_a_unit_with_a_password_is_refused_and_says_where_it_goes(words: list[str]) -> None:
    with pytest.raises(Misconfigured, match="/etc/turnout/environment") as refused:
        unit_file("x", ["up", *words], Path("/s"), 0)
    assert "hunter2" not in str(refused.value)


def test_an_address_without_a_password_is_no_secret() -> None:
    made = unit_file("x", ["up", "--redis-url", "redis://r:6379/0", "--blobs=s3://a/b:c@d"], Path("/s"), 0)
    assert "redis://r:6379/0" in made


def test_systemd_understands_the_unit(bare_cli: Cli, tmp_path: Path) -> None:
    unit = tmp_path / "turnout.service"
    unit.write_text(bare_cli.start("up", "--port", "0", "--print-unit").finish().out)
    words = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=patient(60))
    assert done.returncode == 0 and "turnout.service" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("word", "written"), [("a b", '"a b"'), ("100%", "100%%"), ("$HOME", '"$$HOME"'), ('"\\', '"\\"\\\\"')]
)
def test_a_word_is_written_so_that_systemd_reads_the_same(word: str, written: str) -> None:
    exec_start = service_of(unit_file("x", ["up", word, "--state-dir=/s"], Path("/s"), 0))["ExecStart"]
    assert exec_start.endswith(f" up {written} --state-dir=/s")
