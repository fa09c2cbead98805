"""A chat engine that loads for a given time and answers after the time that the request names: `plan_engine.py PORT LOAD_S`."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MAX_BODY = 1_000_000


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(min(_MAX_BODY, int(self.headers["content-length"]))))
        began = time.time()
        time.sleep(float(body["user"]))
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        message = {"role": "assistant", "content": f"{began} {time.time()}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        self._answer({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})

    def _answer(self, content: dict[str, object]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    time.sleep(float(sys.argv[2]))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
