"""A gang that sends a checkpoint of 200 MB and goes on reporting: run by `test_behind_nat` on the far side of a slow link.

    python -m tests.e2e.large_upload URL MODEL        (a worker key in TURNOUT_JOIN_TOKEN)

Prints how many reports were taken meanwhile, the longest that one took, and the seconds of the upload.
"""

import asyncio
import json
import os
import sys
import time

from turnout.gang.gang_api import GangApi
from turnout.tasks.gang_messages import GangOpening, ProgressTold
from turnout.tasks.task_rules import Stage

BYTES = 200 * 10**6


async def main(url: str, model: str) -> None:
    opener = GangApi(url, os.environ["TURNOUT_JOIN_TOKEN"])
    gang = GangApi(url, (await opener.open_gang(GangOpening(model=model))).token)
    task = await gang.claim(loading=False, wait_s=30)
    assert task
    attempt = gang.attempt(task)
    began = time.monotonic()
    sending = asyncio.create_task(attempt.put("checkpoint-2.safetensors", os.urandom(BYTES)))
    took: list[float] = []
    while not sending.done():
        asked = time.monotonic()
        step = min(len(took), task.spec.steps)
        await attempt.report(ProgressTold(stage=Stage.DENOISING, step=step, of=task.spec.steps))
        took.append(time.monotonic() - asked)
        await asyncio.wait([sending], timeout=0.5)
    await sending
    upload_s = time.monotonic() - began
    await gang.give_back("that was all", counts=False)
    print(json.dumps({"reports": len(took), "longest_s": max(took), "upload_s": upload_s, "task": task.id}))
    await gang.aclose()
    await opener.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
