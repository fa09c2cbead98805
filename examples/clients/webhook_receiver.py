"""Takes webhooks of finished videos, and believes only those that are signed. Needs nothing but Python.

TURNOUT_WEBHOOK_SECRET=whsec_… python webhook_receiver.py 9000

`turnout webhooks secret rotate` prints the secret of a tenant. A webhook may come twice: `webhook-id` is the same then.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BYTES = 1 << 20
MAX_AGE_S = 300  # an older one may be a recording of somebody else's
SECRET = base64.b64decode(os.environ["TURNOUT_WEBHOOK_SECRET"].removeprefix("whsec_"))
seen: set[str] = set()


def is_signed(webhook: str, timestamp: str, given: str, body: bytes) -> bool:
    signed = f"{webhook}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    fresh = timestamp.isdigit() and abs(time.time() - int(timestamp)) < MAX_AGE_S
    return fresh and any(hmac.compare_digest(one.encode(), expected.encode()) for one in given.split())


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), MAX_BYTES))
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        webhook, timestamp, signature = (self.headers.get(name, "") for name in names)
        if not is_signed(webhook, timestamp, signature, body):
            return self.send_error(401)
        if webhook not in seen:
            seen.add(webhook)
            told = json.loads(body)
            print(told["type"], told["data"]["id"], told["data"].get("url") or "", flush=True)
        self.send_response(204)
        self.end_headers()


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver) as server:
        server.serve_forever()
