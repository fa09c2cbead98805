"""Makes docs/demo.svg: a real terminal while a prompt is rendered, and frames of the video that came out.

.venv/bin/python docs/picture.py        (needs tmux; takes a minute)
"""

import base64
import io
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av
from PIL import Image
from rich.console import Console
from rich.text import Text

PROMPT = "a red square moving to the right on a white background"
COLUMNS, ROWS, FRAMES, SIDE = 100, 24, 8, 140
OUT = Path(__file__).with_name("demo.svg")


def tmux(*words: str) -> str:
    return subprocess.run(
        ["tmux", "-L", "picture", *words], check=True, capture_output=True, text=True
    ).stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        video = Path(home) / "square.mp4"
        turnout = Path(sys.executable).with_name("turnout")
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        tmux("new-session", "-d", "-s", "p", *size, f"cd {home}; PS1='$ ' exec sh")
        try:
            up = f"{turnout} up --state-dir {home}/state --port 0"
            tmux("send-keys", "-t", "p", f"{up} --demo '{PROMPT}' -o {video}; exit", "Enter")
            screen = watch_until(r"step 1[0-9] of")
            watch_until("still running")
        finally:
            tmux("kill-server")
        OUT.write_text(drawn(readable(screen, home), video))
    print(OUT)


def watch_until(pattern: str) -> str:
    """The screen, with its colours, as soon as the pattern is on it."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if re.search(pattern, tmux("capture-pane", "-p", "-t", "p")):
            return tmux("capture-pane", "-e", "-p", "-t", "p")
        time.sleep(0.05)
    raise SystemExit(f"never saw {pattern}:\n{tmux('capture-pane', '-p', '-t', 'p')}")


def readable(screen: str, home: str) -> str:
    """Without temporary paths, the port of the day, and the key."""
    screen = screen[screen.index("Turnout is up") :].replace(f"{home}/state", "~/.local/state/turnout")
    screen = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", screen)
    return "$ turnout up --demo …\n\n  " + re.sub(r"tk-[0-9a-f]+\.[0-9a-f]+", "tk-…", screen).rstrip()


def drawn(screen: str, video: Path) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen))
    svg = without_hosts(console.export_svg(title="turnout up --demo"))
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box
    width, height = float(box[1]), float(box[2])
    step = width / FRAMES
    pictures = "".join(
        f'<image x="{n * step + (step - SIDE) / 2:.0f}" y="{height + 10:.0f}" width="{SIDE}" height="{SIDE}" '
        f'href="data:image/png;base64,{png}"/>'
        for n, png in enumerate(frames_of(video))
    )
    svg = svg.replace(box[0], f'viewBox="0 0 {width} {height + SIDE + 20}"', 1)
    return svg.replace("</svg>", f"{pictures}</svg>").replace("</svg></svg>", "</svg>")


def without_hosts(svg: str) -> str:
    """Rich asks a stranger's host for its font; the reader's own monospace does as well."""
    return re.sub(r"\s*(@font-face \{.*?\}|<!-- Generated .*?-->)", "", svg, flags=re.DOTALL)


def frames_of(video: Path) -> list[str]:
    with av.open(str(video)) as container:
        frames = [frame.to_image() for frame in container.decode(video=0)]
    chosen = [frames[n * (len(frames) - 1) // (FRAMES - 1)] for n in range(FRAMES)]
    return [encoded(image) for image in chosen]


def encoded(image: Image.Image) -> str:
    out = io.BytesIO()
    image.quantize(64).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


if __name__ == "__main__":
    main()
