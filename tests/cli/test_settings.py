"""Where settings and servers come from, and that starting the command stays cheap."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from tests.cli.conftest import Cli
from tests.cli.scripted import TOKEN, ScriptedGateway
from tests.pace import patient
from typer.main import get_group

from turnout.cli.config_command import masked
from turnout.cli.main import MODULES
from turnout.cli.options import find_server
from turnout.errors import Misconfigured


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


def test_a_setting_is_read_by_its_former_name(bare_cli: Cli, tmp_path: Path) -> None:
    found = shown(bare_cli, TURNOUT_VLLM_ZYGOTE="true")
    assert found["vllm_fork_server"] == {"value": True, "origin": "TURNOUT_VLLM_ZYGOTE"}
    (tmp_path / "turnout.yaml").write_text("vllm_zygote: true\n")
    assert shown(bare_cli)["vllm_fork_server"] == {"value": True, "origin": "turnout.yaml"}


def test_shared_options_may_stand_before_or_after_the_command(bare_cli: Cli, tmp_path: Path) -> None:
    before = json.loads(bare_cli("--state-dir", str(tmp_path / "mine"), "config", "--json").out)
    said = [
        bare_cli(*words).err
        for words in (("--ca-file", "no.pem", "status"), ("status", "--ca-file", "no.pem"))
    ]
    assert said[0] == said[1], "docs/cli.md says so of each"
    assert before["state_dir"]["value"] == str(tmp_path / "mine")


def test_the_table_shows_models_and_hides_secrets(bare_cli: Cli) -> None:
    done = bare_cli(
        "config", TURNOUT_REDIS_URL="redis://me:hush@db:6379/0", TURNOUT_WEBHOOK_SECRET="whsec_hush"
    )
    assert "redis://me:•••@db:6379/0" in done.out and "hush" not in done.out
    assert "models.wan-tiny-t2v" in done.out and "2 ranks" in done.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("prot: 1", "there is no setting 'prot'; did you mean port?"),
        ("zzzz: 1", "there is no setting 'zzzz'; `turnout config` shows all"),
        ("port: 80000", "port: Input should be less than or equal to 65535"),
        ("lease_s: -5", "lease_s: Input should be greater than 0"),
        ("lease_s: .nan", "lease_s: Input should be a finite number"),
        ("log_level: loud", "log_level: Input should be 'debug', 'info', 'warning' or 'error'"),
        ("redis_url: foo", "redis_url: Value error, a Redis URL begins with redis://"),
        ("blobs: ftp://x", "blobs: Value error, objects go to a directory or to s3://bucket/prefix"),
        ("redis_url: redis://h:p", "redis_url: Value error, a Redis URL looks like redis://host:6379/0"),
        ("redis_url: 'redis://[::1'", "redis_url: Value error, a Redis URL looks like redis://host"),
        ("public_url: video.example", "public_url: Value error, an http or https URL, as https://"),
        ("trusted_proxies: proxy", "trusted_proxies: Value error, 'proxy' does not appear to be an IPv4"),
        ("cors_origins: app.example.com", "cors_origins: Value error, app.example.com is no origin like"),
        ("cors_origins: https://a.example/", "cors_origins: Value error, https://a.example/ is no origin"),
        ("cors_origins: 'https://a.example, b'", "cors_origins: Value error, b is no origin like"),
    ],
)
def test_a_bad_setting_is_one_line_and_exit_2(bare_cli: Cli, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "turnout.yaml").write_text(content)
    done = bare_cli("config")
    assert done.code == 2
    assert done.err.startswith(f"error: turnout.yaml: {said}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"port: 1\nport: 2", "turnout.yaml:2: port is given twice"),
        (
            b"models:\n  a: {engine: vllm, weights: x}\nmodels:\n  b: {}",
            "turnout.yaml:3: models is given twice",
        ),
        (b"models:\n\twan: {}", "turnout.yaml:2: found character"),
        (b"models: wan: x", "turnout.yaml:1: mapping values are not allowed here"),
        ("site: {name: 体验中心}".encode("gbk"), "turnout.yaml: this is no text in UTF-8"),
        (b"on: true", "turnout.yaml: a name is text; put True into quotes"),
        (b"models: {7: {}}", "models: a name is text; put 7 into quotes"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(
    bare_cli: Cli, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "turnout.yaml").write_bytes(content)
    done = bare_cli("config")
    assert done.code == 2 and done.err.startswith(f"error: {said}"), done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("{engine: vllm}", "weights is required."),
        ("{engine: vllm, weights: x, idel_s: 3}", "Unknown parameter: idel_s; did you mean idle_s?"),
        ("{engine: vllm, weights: x, needs: {gpu: 1}}", "Unknown parameter: needs.gpu; did you mean gpus?"),
        ("{engine: vllm, weights: x, arguments: --seed=1}", "arguments must be a list."),
        ("{engine: command, weights: x, command: serve}", "command must be a list."),
    ],
)
def test_a_mistyped_model_is_told_in_the_files_words(
    bare_cli: Cli, tmp_path: Path, model: str, said: str
) -> None:
    (tmp_path / "turnout.yaml").write_text(f"models: {{a: {model}}}")
    done = bare_cli("config")
    assert (done.code, done.err) == (2, f"error: models.a: {said}\n")


def test_a_variable_that_is_nearly_a_setting_is_refused_and_others_are_not_ours(bare_cli: Cli) -> None:
    done = bare_cli("config", TURNOUT_PROT="1")
    assert (done.code, done.err) == (
        2,
        "error: TURNOUT_PROT: there is no setting 'prot'; did you mean port?\n",
    )
    assert bare_cli("config", TURNOUT_SERVICE_HOST="10.0.0.1").code == 0
    assert "enableServiceLinks" in bare_cli("config", TURNOUT_PORT="tcp://10.0.0.1:8000").err


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_up_on_an_address_of_another_machine_says_so(bare_cli: Cli, host: str) -> None:
    done = bare_cli.start("up", "--host", host).finish()  # it starts the log, which is the process's
    assert done.code == 2 and "--host is an address of this machine" in done.err


def test_up_says_where_it_cannot_keep_videos(bare_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    done = bare_cli.start("up", "--port", "0", "--blobs", "a-file/in").finish()
    assert done.code == 2 and "blobs: " in done.err and "cannot be made: Not a directory" in done.err
    assert done.err.count("\n") == 1


def test_a_port_that_no_machine_has_is_refused(bare_cli: Cli) -> None:
    done = bare_cli("worker", "--join", "http://127.0.0.1:9", "--token", "x", "--listen-port", "99999")
    assert done.code == 2 and "65535" in done.err


def test_up_looks_at_the_files_of_its_site_first(bare_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "turnout.yaml").write_text("site: {logo: no-logo.png}")
    done = bare_cli.start("up", "--port", "0").finish()
    assert done.code == 2 and done.err.startswith("error: site.logo: no-logo.png cannot be read"), done.err


def test_up_ends_when_a_part_cannot_start(bare_cli: Cli, tmp_path: Path) -> None:
    """It said that it was up, and its gateway died again and again."""
    (tmp_path / "turnout.yaml").write_text("ca_file: none.pem")
    done = bare_cli.start("up", "--port", "0").finish()
    said = done.err.splitlines()[-1]
    assert done.code == 2 and " does not start: ca_file none.pem: No such file or directory" in said
    assert "is up" not in done.out


@pytest.mark.parametrize("flags", [("--port", "80000"), ("--redis-url", "foo"), ("--blobs", "ftp://x")])
def test_up_refuses_a_bad_flag_in_one_line(bare_cli: Cli, flags: tuple[str, str]) -> None:
    done = bare_cli("up", *flags)
    assert done.code == 2
    assert done.err.startswith(f"error: {flags[0]}: ") and done.err.count("\n") == 1


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
        self.config = SimpleNamespace(state_dir=directory, gateway=SimpleNamespace(port=8123))

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


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a", "127.0.0.1:8000", "http://", "http://user:pw@host"),
        *("http://host:port", "http://host:99999", "http://[::1", "http://my host"),
    ],
)
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


def test_every_command_is_where_the_table_says() -> None:
    found: dict[str, str] = {}
    for module in set(MODULES.values()):
        app = typer.Typer(callback=lambda: None)
        import_module(f"turnout.cli.{module}").register(app)
        found |= dict.fromkeys(get_group(app).commands, module)
    assert found == MODULES


def test_a_mistyped_command_is_named(bare_cli: Cli) -> None:
    done = bare_cli("tsks", "list")
    assert done.code == 2 and "Did you mean 'tasks'?" in done.err


def test_ctrl_c_while_starting_is_quiet() -> None:
    code = "import sys, turnout.__main__ as m; sys.modules['turnout.cli.main'] = Interrupting(); m.main()"
    interrupting = "class Interrupting:\n    def __getattr__(self, name): raise KeyboardInterrupt\n"
    done = subprocess.run(
        [sys.executable, "-c", interrupting + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_starting_loads_nothing_heavy() -> None:
    heavy = {
        "torch",
        "redis",
        "httpx",
        "fastapi",
        "rich",
        "pydantic",
        "turnout.run.config",
        "turnout.tasks.task_rules",
        "yaml",
    }
    code = (
        "import sys\nfrom turnout.__main__ import main\nsys.argv[1:] = ['--help']\n"
        f"try: main()\nexcept SystemExit: print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=patient(60)
    )
    assert done.stdout.splitlines()[-1] == "[]"
