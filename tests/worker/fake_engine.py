"""An engine server in a few lines that misbehaves on request: `python fake_engine.py PORT [--hang-loading] …`."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--hang-loading", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--say", default="")
    parser.add_argument("--exit", type=int, default=None)
    parser.add_argument("--with-core", action="store_true", help="start a process that outlives this one")
    parser.add_argument("--no-health", action="store_true")
    parser.add_argument("--refuse-sleep", action="store_true")
    parser.add_argument("--busy-once", action="store_true", help="answer 503 to the first request")
    parser.add_argument(
        "--metrics", help="the text of /metrics; `endless` and `silent` begin an answer and never end it"
    )
    options = parser.parse_args()
    if options.say:
        print(options.say, flush=True)
    if options.exit is not None:
        if options.exit < 0:
            os.kill(os.getpid(), -options.exit)
        sys.exit(options.exit)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.with_core:
        core = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
        subprocess.Popen([sys.executable, "-c", core])
        subprocess.Popen([sys.executable, "-c", core], start_new_session=True)
    asleep, refused = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: Any = None) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def tell_metrics(self) -> None:
            self.send_response(200)
            self.end_headers()
            match options.metrics:
                case "silent":
                    threading.Event().wait()
                case "endless":
                    with contextlib.suppress(OSError):
                        while True:
                            self.wfile.write(b"vllm:num_requests_running 1\n" * 1000)
                case text:
                    self.wfile.write(text.encode("utf-8", "surrogateescape"))

        def do_GET(self) -> None:
            match self.path:
                case "/metrics" if options.metrics is not None:
                    self.tell_metrics()
                case "/health":
                    self.answer(404 if options.no_health else 503 if options.hang_loading else 200)
                case "/v1/models":
                    self.answer(200, {"data": []})
                case "/is_sleeping":
                    self.answer(200, {"is_sleeping": asleep.is_set()})
                case _:
                    self.answer(404)

        def do_POST(self) -> None:
            match self.path:
                case "/sleep?level=1" if options.refuse_sleep:
                    self.answer(500, {"error": "sleep mode is off"})
                case "/sleep?level=1":
                    asleep.set()
                    self.answer(200)
                case "/wake_up":
                    asleep.clear()
                    self.answer(200)
                case "/v1/chat/completions":
                    asked = self.rfile.read(int(self.headers["content-length"])).decode()
                    if options.busy_once and not refused.is_set():
                        refused.set()
                        self.answer(503, {"error": {"message": "busy"}})
                        return
                    wait_for_file(asked)
                    self.answer(200, {"asked": asked, "key": self.headers["authorization"]})
                case _:
                    self.answer(404)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


def wait_for_file(asked: str) -> None:
    """A request may ask for its answer to be held back until a file is there."""
    with contextlib.suppress(ValueError, AttributeError):
        until = json.loads(asked).get("until")
        while until and not os.path.exists(until):
            time.sleep(0.02)


if __name__ == "__main__":
    main()
