"""Asks a service for chat, streams and videos for some seconds, and prints as JSON what it got. The trial runs it in a pod, by the
image's own Python: so it has the standard library and httpx alone.

TURNOUT_URL, TURNOUT_API_KEY, LOAD_S, CHAT, VIDEO, VIDEOS (at the same time)
"""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable

import httpx

URL, LOAD_S = os.environ["TURNOUT_URL"], float(os.environ["LOAD_S"])
HEADERS = {"authorization": f"Bearer {os.environ['TURNOUT_API_KEY']}"}
CHAT, VIDEO = os.environ.get("CHAT"), os.environ.get("VIDEO")
served: Counter[str] = Counter()
failures: list[str] = []
deadline = time.monotonic() + LOAD_S


def chat(client: httpx.Client) -> None:
    body = {"model": CHAT, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    client.post("/v1/chat/completions", json=body).raise_for_status()


def stream(client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Count to twenty."}]
    body = {"model": CHAT, "messages": messages, "max_tokens": 60, "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        answer.raise_for_status()
        text = "".join(answer.iter_text())
    if not text.rstrip().endswith("[DONE]"):
        raise ValueError(f"a stream ended with {text[-200:]!r}")


def video(client: httpx.Client) -> None:
    made = client.post("/v1/videos", json={"model": VIDEO, "prompt": "a red square"})
    made.raise_for_status()
    task = made.json()["id"]
    while (state := client.get(f"/v1/videos/{task}").raise_for_status().json())["status"] != "completed":
        if state["status"] in ("failed", "cancelled"):
            raise ValueError(f"task {task}: {state.get('error')}")
        time.sleep(0.5)
    if not client.get(f"/v1/videos/{task}/content").raise_for_status().content.startswith(b"\0\0\0"):
        raise ValueError(f"task {task}: no mp4")


def models(client: httpx.Client) -> None:
    client.get("/v1/models").raise_for_status()
    time.sleep(0.05)


def keep_asking(name: str, ask: Callable[[httpx.Client], None]) -> None:
    with httpx.Client(base_url=URL, headers=HEADERS, timeout=180) as client:
        while time.monotonic() < deadline:
            try:
                ask(client)
                served[name] += 1
            except (httpx.HTTPError, ValueError, KeyError) as err:
                failures.append(f"{name} after {LOAD_S - deadline + time.monotonic():.0f} s: {err!r}")
                time.sleep(0.5)


asked = [("models", models)]
if CHAT:
    asked += [("chat", chat), ("chat", chat), ("stream", stream)]
if VIDEO:
    asked += [("video", video)] * int(os.environ["VIDEOS"])
threads = [threading.Thread(target=keep_asking, args=one) for one in asked]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps({"served": served, "failures": failures}))
