"""A hub on loopback that speaks the protocols of Hugging Face and of ModelScope. Files may break off half way."""

import hashlib
import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "a" * 40
LARGE = 10_000
_REPO = r"(?:org/tiny|Qwen/Qwen3-0\.6B-GGUF)"
_TREE = f"/api/models/{_REPO}/tree/{COMMIT}"


class FakeHub:
    """`stall` names a file that stops after so many bytes, and stays open; `breaks` one that ends there, once."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.contents = files
        self.stall: tuple[str, int] | None = None
        self.breaks: tuple[str, int] | None = None
        self.ranges: list[tuple[str, str]] = []
        self.released = threading.Event()
        self.url = ""
        self.continues_at = ""  # where the second page of the list is said to be; here unless said
        self.odd_tree: Any = None
        self.authorizations: list[str] = []

    def tree(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = [
            {"type": "directory", "path": "transformer", "oid": "b" * 40, "size": 0}
        ]
        for path, data in self.contents.items():
            oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": oid}
            if len(data) >= LARGE:
                entry |= {
                    "oid": "c" * 40,
                    "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130},
                }
            entries.append(entry)
        return entries

    def scope_files(self) -> list[dict[str, Any]]:
        return [{"Path": "transformer", "Type": "tree", "Size": 0}] + [
            {"Path": path, "Type": "blob", "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}
            for path, data in self.contents.items()
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        self.hub.authorizations.append(self.headers.get("Authorization", ""))
        if re.fullmatch(rf"/api/models/{_REPO}(/revision/[^/]+)?", asked.path):
            siblings = [{"rfilename": path} for path in self.hub.contents]
            self._json({"id": "org/tiny", "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})
        elif re.fullmatch(_TREE, asked.path) and self.hub.odd_tree is not None:
            self._json(self.hub.odd_tree)
        elif re.fullmatch(_TREE, asked.path):
            entries, second = self.hub.tree(), "cursor" in parse_qs(asked.query)
            link = (
                f'<{self.hub.continues_at or self.hub.url}{asked.path}?recursive=true&cursor=x>; rel="next"'
            )
            self._json(entries[2:] if second else entries[:2], {} if second else {"Link": link})
        elif re.fullmatch(f"/api/v1/models/{_REPO}/repo/files", asked.path):
            assert parse_qs(asked.query) == {"Revision": ["master"], "Recursive": ["true"]}
            self._json({"Code": 200, "Data": {"Files": self.hub.scope_files()}, "Success": True})
        elif found := re.fullmatch(rf"/{_REPO}/resolve/{COMMIT}/(.+)", asked.path):
            path = unquote(found[1])
            self._redirect(path) if len(self.hub.contents[path]) >= LARGE else self._content(path)
        elif found := re.fullmatch(rf"(?:/models/{_REPO}/resolve/master|/cdn)/(.+)", asked.path):
            self._content(unquote(found[1]))
        else:
            self._json({"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}, 404)

    def _json(self, value: object, headers: dict[str, str] | None = None, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _redirect(self, path: str) -> None:
        """As the real one: what is large lies on another host."""
        data = self.hub.contents[path]
        self.send_response(302)
        self.send_header("Location", f"{self.hub.url.replace('127.0.0.1', 'localhost')}/cdn/{path}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-Size", str(len(data)))
        self.send_header("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _content(self, path: str) -> None:
        data = self.hub.contents[path]
        asked = self.headers.get("Range", "")
        start = int(found[1]) if (found := re.match(r"bytes=(\d+)-", asked)) else 0
        self.hub.ranges.append((path, asked))
        self.send_response(206 if found else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "HEAD":
            return
        for cut, stays in ((self.hub.breaks, False), (self.hub.stall, True)):
            if cut and cut[0] == path and start < cut[1]:
                self.wfile.write(data[start : cut[1]])
                self.wfile.flush()
                self.hub.breaks = None
                if stays:
                    self.hub.released.wait(60)
                self.close_connection = True
                return
        self.wfile.write(data[start:])


@contextmanager
def fake_hub(files: dict[str, bytes]) -> Generator[FakeHub]:
    hub = FakeHub(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
