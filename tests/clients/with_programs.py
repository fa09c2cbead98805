"""curl and promtool."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from tests.clients.calls import Calls, expect

URL, KEY = os.environ["TURNOUT_URL"], os.environ["TURNOUT_API_KEY"]


def run(*words: str, data: str = "") -> str:
    done = subprocess.run(words, input=data, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise ValueError(f"exit code {done.returncode}: {done.stdout[-200:]} {done.stderr[-200:]}")
    return done.stdout


def fetch(path: str, *words: str) -> str:
    address = path if path.startswith("http") else f"{URL}{path}"
    return run("curl", "-sS", "--fail-with-body", "-H", f"Authorization: Bearer {KEY}", address, *words)


curl = Calls("curl")


@curl("/health, /ready, /openapi.json, /docs, without a key")
def _() -> None:
    for path in ("/health", "/ready", "/openapi.json", "/docs"):
        run("curl", "-sS", "--fail", f"{URL}{path}")


@curl("POST /generate with an own id, events, content, a range")
def _() -> None:
    asked = {"task_id": "curl-1", "prompt": "a red ball", "size": "64x64", "frames": 5, "sampling_steps": 2}
    told: Any = json.loads(fetch("/generate", "--json", json.dumps(asked)))
    expect(told == {"status": "task_started", "task_id": "curl-1"}, told)
    expect("event: video.completed" in fetch("/v1/videos/curl-1/events", "-N"))
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "a.mp4"
        fetch("/v1/videos/curl-1/content", "-L", "-o", str(file))
        expect(file.read_bytes()[4:8] == b"ftyp")
        fetch("/v1/videos/curl-1/content?redirect=false", "-r", "0-7", "-o", str(file))
        expect(len(file.read_bytes()) == 8)


@curl("the url of a video, without a key")
def _() -> None:
    url = json.loads(fetch("/v1/videos/curl-1"))["url"]
    with tempfile.TemporaryDirectory() as home:
        run("curl", "-sSL", "--fail", "-o", f"{home}/a.mp4", url)
        expect((Path(home) / "a.mp4").read_bytes()[4:8] == b"ftyp")


@curl("a form with a first frame")
def _() -> None:
    with tempfile.TemporaryDirectory() as home:
        picture = Path(home) / "a.png"
        Image.new("RGB", (64, 64), "red").save(picture)
        form = ("-F", "prompt=a ball", "-F", "model=wan-tiny-ti2v", "-F", f"input_reference=@{picture}")
        fetch(f"/v1/videos/{json.loads(fetch('/v1/videos', *form))['id']}", "-X", "DELETE")


@curl("an unknown field", refused="Unknown parameter: colour.")
def _() -> None:
    fetch("/v1/videos", "--json", '{"prompt": "a", "colour": "red"}')


prometheus = Calls("promtool")


@prometheus("check metrics, of /metrics")
def _() -> None:
    run("promtool", "check", "metrics", data=fetch("/metrics"))
