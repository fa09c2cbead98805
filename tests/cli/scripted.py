"""A gateway that does what a test tells it: speaks the dialect over real sockets, and dies when asked."""

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "tk-abc.secret-of-the-test"
HELD_S = 600.0  # longer than any test: what is held must not go on by itself
MP4 = b"\x00\x00\x00\x20ftypisom" + bytes(range(256)) * 40


@dataclass
class Request:
    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes


class Hangup(Exception):
    """Break the connection without another byte."""


def error(status: int, message: str, param: str | None = None, **headers: str) -> "Answer":
    kind = "invalid_request_error" if status == 400 else "error"
    return Answer(
        status, {"error": {"message": message, "type": kind, "param": param, "code": None}}, dict(headers)
    )


@dataclass
class Answer:
    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict[str, str])


def progress(step: int, of: int = 6, stage: str = "denoising") -> dict[str, Any]:
    return {"type": "video.progress", "stage": stage, "step": step, "steps": of, "eta_s": of - step}


STORY: Sequence[dict[str, Any]] = (
    {"type": "video.queued"},
    {"type": "video.in_progress", "stage": "loading", "attempt": 1},
    *(progress(step) for step in range(1, 7)),
    progress(0, 0, "decoding"),
    {"type": "video.completed"},
)


def video_json(task: str, **fields: Any) -> dict[str, Any]:
    """A video object as a gateway shows it."""
    return {
        "id": task,
        "object": "video",
        "model": "wan-tiny-t2v",
        "status": "queued",
        "progress": 0,
        "created_at": 1_700_000_000,
        "completed_at": None,
        "expires_at": None,
        "prompt": "a boat",
        "seconds": "1",
        "size": "64x64",
        "remixed_from_video_id": None,
        "error": None,
        "stage": None,
        "step": 0,
        "steps": 6,
        "queue_position": None,
        "eta_s": None,
        "attempt": 0,
        "failures": 0,
        "priority": "normal",
        "started_at": None,
        "negative_prompt": "",
        "frames": 17,
        "fps": 16,
        "guidance": [3.0, 4.0],
        "shift": 5.0,
        "seed": 7,
        "preview_url": None,
        **fields,
    }


class ScriptedGateway:
    """One task at a time matters to these tests; its events are `story`, served from after `Last-Event-ID`.

    `positions` are the queue positions that successive looks see before the task runs. `hooks` may take over a
    route ("POST /v1/videos", "GET events", …): they return an Answer, None for the usual one, or raise Hangup.
    """

    def __init__(self) -> None:
        self.story: list[dict[str, Any]] = list(STORY)
        self.positions: list[int] = [2, 0]
        self.hooks: dict[str, Callable[[Request], Answer | None]] = {}
        self.drops: list[int] = []  # the n-th event stream breaks after so many events
        self.requests: list[Request] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.by_key: dict[str, str] = {}
        self.told: list[int] = []  # indices of the events that were sent, in order
        self.failure: dict[str, str] | None = None
        self.content = MP4
        self.breaks_downloads = 0
        self.streams_held = threading.Event()
        self.hold_at: int | None = None  # the stream stays silent before this event until cancelled
        self.cancelled = threading.Event()
        self.chat_frames: list[
            bytes
        ] = []  # what a streamed chat answer consists of; b"hold" waits for `cancelled`
        self.models: list[dict[str, Any]] = []
        self.workers: list[dict[str, Any]] = []
        self.usage: list[dict[str, Any]] = []
        self.usage_more: dict[str, Any] = {}
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listen(self) -> None:
        gateway = self

        class Handler(_Handler):
            scripted = gateway

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def vanish(self) -> None:
        """Stops taking connections; `listen` brings it back on the same port."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def close(self) -> None:
        self.cancelled.set()
        self.vanish()

    def seen(self, method: str, ending: str) -> list[Request]:
        return [r for r in self.requests if r.method == method and r.path.endswith(ending)]

    def answer(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return error(401, "Incorrect API key provided.")
        parts = request.path.strip("/").split("/")
        match request.method, parts:
            case "POST", ["v1", "videos"]:
                return self._submit(request)
            case "GET", ["v1", "videos"]:
                data = [self.look(task) for task in reversed(self.tasks)]
                return Answer(200, {"object": "list", "data": data, "has_more": False})
            case "GET", ["v1", "videos", task] if task in self.tasks:
                return Answer(200, self.look(task))
            case "POST", ["v1", "videos", task, "cancel"] if task in self.tasks:
                self.tasks[task]["status"] = "cancelled"
                self.cancelled.set()
                return Answer(200, self.look(task))
            case "GET", ["v1", "models"]:
                return Answer(200, {"object": "list", "data": self.models})
            case "POST", ["v1", "models", "register"]:
                return Answer(200, {"id": json.loads(request.body)["alias"], "status": "registered"})
            case "GET", ["v1", "usage"]:
                days = {"start": "2026-11-01", "end": "2026-11-07"}
                return Answer(200, {**days, "data": self.usage, **self.usage_more})
            case "GET", ["workers"]:
                return Answer(200, {"data": self.workers})
            case "POST", ["workers", name, "drain"] if any(w["id"] == name for w in self.workers):
                return Answer(200, json.loads(request.body))
            case _:
                return error(404, "No such thing.")

    def add(self, task: str = "video_1", **fields: Any) -> None:
        self.tasks[task] = video_json(task, **fields)

    def look(self, task: str) -> dict[str, Any]:
        video = self.tasks[task]
        if video["status"] == "queued" and self.positions:
            return {**video, "queue_position": self.positions.pop(0)}
        if video["status"] == "queued":
            video["status"] = "in_progress"
            video["stage"] = "loading"
        return video

    def _submit(self, request: Request) -> Answer:
        key = request.headers["idempotency-key"]
        if key not in self.by_key:
            self.by_key[key] = f"video_{len(self.tasks) + 1}"
            self.add(self.by_key[key])
        return Answer(200, self.look(self.by_key[key]))

    def end(self, task: str, event: Mapping[str, Any]) -> None:
        name = event["type"].removeprefix("video.")
        if name in ("completed", "failed", "cancelled"):
            self.tasks[task].update(status=name, error=self.failure, stage=None)
        elif name == "progress":
            self.tasks[task].update({k: event[k] for k in ("stage", "step", "steps")})
        elif name == "requeued":
            self.tasks[task].update(status="queued", stage=None)


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedGateway
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def _serve(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, url.path, parse_qs(url.query), headers, self.rfile.read(length))
        self.scripted.requests.append(request)
        try:
            route = f"{self.command} {url.path}"
            last = f"{self.command} {url.path.rsplit('/', 1)[-1]}"
            hook = self.scripted.hooks.get(route) or self.scripted.hooks.get(last)
            answer = hook(request) if hook else None
            if answer is None and url.path.endswith("/events"):
                self._stream(request, url.path.split("/")[3])
            elif answer is None and url.path.endswith("/content"):
                self._content()
            elif answer is None and url.path == "/v1/chat/completions" and b'"stream": true' in request.body:
                self._chat()
            else:
                self._send(answer or self.scripted.answer(request))
        except Hangup:
            self._hang_up()

    def _send(self, answer: Answer) -> None:
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in answer.headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, request: Request, task: str) -> None:
        scripted = self.scripted
        limit = scripted.drops.pop(0) if scripted.drops else None
        start = int(request.headers.get("last-event-id", "0"))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._chunk(b": hello\n\n")
        for number, event in enumerate(scripted.story[start:], start + 1):
            if limit is not None and number - start > limit:
                raise Hangup
            if scripted.hold_at == number:
                scripted.streams_held.set()
                scripted.cancelled.wait(HELD_S)
                break
            scripted.told.append(number)
            scripted.end(task, event)
            data = json.dumps({"id": str(number), "object": "video.event", "video": task, **event})
            self._chunk(f"id: {number}\nevent: {event['type']}\ndata: {data}\n\n".encode())
        self._chunk(b"")

    def _chat(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for frame in self.scripted.chat_frames:
            if frame == b"hold":
                self.scripted.streams_held.set()
                self.scripted.cancelled.wait(HELD_S)
            else:
                self._chunk(frame)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _content(self) -> None:
        scripted = self.scripted
        self.send_response(200)
        self.send_header("content-type", "video/mp4")
        self.send_header("content-length", str(len(scripted.content)))
        self.end_headers()
        if scripted.breaks_downloads:
            scripted.breaks_downloads -= 1
            self.wfile.write(scripted.content[: len(scripted.content) // 2])
            self.wfile.flush()
            raise Hangup
        self.wfile.write(scripted.content)

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
