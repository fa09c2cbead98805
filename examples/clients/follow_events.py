"""Prints what happens to all videos of a tenant, and misses nothing when the connection breaks.

TURNOUT_URL=http://127.0.0.1:8000 TURNOUT_API_KEY=tk-… python follow_events.py        (pip install websockets)

Each message is one event: `type` (video.queued, video.in_progress, video.progress, video.preview, video.checkpoint, video.requeued,
video.completed, video.failed, video.cancelled, video.deleted), `video` (its id), `created_at`, `id` (rises within a video), `cursor` (where a
reconnect goes on), and by type `progress`, `stage`, `step`, `steps`, `eta_s`, `attempt`, `reason`, `preview_url`, `url`, `error`. The first
message, video.watching, and the notes video.waiting have no cursor of their own to keep.
"""

import asyncio
import json
import os

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


async def main() -> None:
    base = os.environ["TURNOUT_URL"].replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {os.environ['TURNOUT_API_KEY']}"}
    cursor = ""
    while True:
        after = f"?after={cursor}" if cursor else ""
        try:
            async with connect(f"{base}/v1/videos/ws{after}", additional_headers=headers) as socket:
                async for message in socket:
                    event = json.loads(message)
                    cursor = event.get("cursor") or cursor
                    if event["object"] == "video.event":
                        print(event["video"], event["type"], event.get("progress", ""), flush=True)
        except (ConnectionClosed, OSError):
            await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(main())
