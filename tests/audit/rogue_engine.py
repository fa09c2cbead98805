"""An engine that answers what the last message says: `header NAME: VALUE`, `status N`, or `stream` without end."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Rogue(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind, _, what = body["messages"][-1]["content"].partition(" ")
        if kind == "stream":
            return self._stream()
        name, _, value = what.partition(": ")
        self._answer(int(what) if kind == "status" else 200, (name, value) if kind == "header" else None)

    def _answer(self, status: int, header: tuple[str, str] | None = None) -> None:
        content = b'{"choices": []}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if header is not None:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        while True:
            self.wfile.write(b'data: {"choices": []}\n\n')
            self.wfile.flush()
            time.sleep(0.1)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Rogue).serve_forever()
