"""How other proxies and routers are set up in front of one upstream, each in an environment of its own."""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.figures import say

_INSTALL_S = 600.0
_HOMES = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "turnout-benchmarks"


@dataclass(frozen=True, slots=True)
class Command:
    """`settle_s` is how long it needs after it listens."""

    words: list[str]
    environment: dict[str, str] = field(default_factory=dict[str, str])
    settle_s: float = 0.2


@dataclass(frozen=True, slots=True)
class Peer:
    """`packages` go into the peer's own environment; `command` gets that environment's bin directory."""

    packages: tuple[str, ...]
    command: Callable[[Path, Path, int, int], Command]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def nginx(workplace: Path, port: int, upstream: int) -> Command:
    path = workplace / "nginx.conf"
    temporary = "\n".join(
        f"  {kind}_temp_path {workplace}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi")
    )
    path.write_text(
        f"""worker_processes 1; daemon off; pid {workplace}/nginx.pid; error_log {workplace}/nginx.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; keepalive_requests 10000000; client_body_temp_path {workplace}/body;
{temporary}
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""
    )
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    return Command([binary, "-c", str(path), "-e", f"{workplace}/nginx.log"], settle_s=0.5)


def haproxy(workplace: Path, port: int, upstream: int) -> Command:
    path = workplace / "haproxy.cfg"
    path.write_text(
        f"""global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-no-delay
frontend front
  bind 127.0.0.1:{port}
  default_backend engine
backend engine
  http-reuse always
  server one 127.0.0.1:{upstream} pool-max-conn 256
"""
    )
    return Command([shutil.which("haproxy") or "/usr/sbin/haproxy", "-f", str(path), "-db"])


def _sglang(home: Path, workplace: Path, port: int, upstream: int) -> Command:
    words = [
        str(home / "python"),
        "-m",
        "sglang_router.launch_router",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    words += [
        "--worker-urls",
        f"http://127.0.0.1:{upstream}",
        "--policy",
        "round_robin",
        "--log-level",
        "error",
    ]
    return Command([*words, "--prometheus-port", str(free_port())], settle_s=3)


def _vllm(home: Path, workplace: Path, port: int, upstream: int) -> Command:
    words = [str(home / "vllm-router"), "--host", "127.0.0.1", "--port", str(port)]
    words += [
        "--worker-urls",
        f"http://127.0.0.1:{upstream}",
        "--policy",
        "round_robin",
        "--log-level",
        "error",
    ]
    return Command([*words, "--prometheus-port", str(free_port())], settle_s=3)


def _litellm(home: Path, workplace: Path, port: int, upstream: int) -> Command:
    path = workplace / "litellm.json"
    where = {"model": "openai/bench", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    path.write_text(json.dumps({"model_list": [{"model_name": "bench", "litellm_params": where}]}))
    words = [str(home / "litellm"), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)]
    # Without a key of its own it does not start, unless told; it listens on loopback only.
    settings = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it waits for a file from the internet
    }
    return Command([*words, "--num_workers", "1"], settings, settle_s=3)


def _smg(home: Path, workplace: Path, port: int, upstream: int) -> Command:
    words = [str(home / "smg"), "launch", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", "round_robin"]
    return Command([*words, "--log-level", "error", "--prometheus-port", str(free_port())], settle_s=3)


PEERS: dict[str, Peer] = {
    "sglang-router": Peer(("sglang-router",), _sglang),
    "vllm-router": Peer(("vllm-router",), _vllm),
    "smg": Peer(("smg",), _smg),
    "litellm": Peer(("litellm[proxy]",), _litellm),
}


async def install(name: str) -> Path:
    """The bin directory of the peer's environment, made if need be; raises OSError."""
    home = _HOMES / name
    done = home / "installed"
    if not done.exists():
        say(f"installing {name}")
        packages = PEERS[name].packages
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        for words in (
            (uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)),
            (uv, "pip", "install", "--quiet", "--python", str(home / "bin" / "python"), *packages),
        ):
            child = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
            _, said = await asyncio.wait_for(child.communicate(), _INSTALL_S)
            if child.returncode != 0:
                raise OSError(f"it could not be installed: {said[-200:].decode(errors='replace').strip()}")
        done.touch()
    return home / "bin"
