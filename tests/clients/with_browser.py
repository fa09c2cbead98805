# type: ignore - playwright is called as its users call it
"""A page of another origin in a real browser: what CORS lets it read, of an engine that wakes and of one that is warm."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from tests.clients.calls import Calls, expect
from tests.page.conftest import CHROMIUM, FLAGS

URL, KEY, ORIGIN = (os.environ[name] for name in ("TURNOUT_URL", "TURNOUT_API_KEY", "TURNOUT_ORIGIN"))
calls = Calls("a page of another origin (Chromium)")

ASK = """async ([url, key, stream]) => {
  const body = { model: "cold", messages: [{ role: "user", content: "Say hello." }], max_tokens: 8, stream };
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body: JSON.stringify(body) });
  return { status: answer.status, text: await answer.text(), allowed: answer.headers.get("access-control-allow-origin") };
}"""


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>elsewhere</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(port: int = 0) -> str:
    server = ThreadingHTTPServer(("127.0.0.1", port), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


with sync_playwright() as driver:
    browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    tab = browser.new_page()
    tab.goto(serve(urlsplit(ORIGIN).port))

    def ask(stream: bool, words: str) -> None:
        got = tab.evaluate(ASK, [URL, KEY, stream])
        expect(got["status"] == 200 and words in got["text"], got)

    @calls("fetch /v1/chat/completions, stream, while llama.cpp wakes")
    def _() -> None:
        ask(True, "[DONE]")

    @calls("fetch /v1/chat/completions, stream, of a warm llama.cpp")
    def _() -> None:
        ask(True, "[DONE]")

    @calls("fetch /v1/chat/completions of a warm llama.cpp")
    def _() -> None:
        ask(False, '"choices"')

    @calls("fetch /v1/models")
    def _() -> None:
        got = tab.evaluate(
            "async ([url, key]) => (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).json()",
            [URL, KEY],
        )
        expect("cold" in [one["id"] for one in got["data"]], got)

    @calls("the same from an origin that is not allowed", refused="Failed to fetch")
    def _() -> None:
        tab.goto(serve())
        ask(False, '"choices"')

    browser.close()
