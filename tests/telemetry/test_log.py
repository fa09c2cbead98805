"""To log never raises and never waits, whatever becomes of the log."""

import json
import os
import subprocess
import sys

from tests.conftest import wait_until
from tests.pace import patient

from turnout.telemetry.log import LogStream

PROGRAM = """
import os, sys, threading
from turnout.telemetry.log import dropped_lines, drain_log, get_log, start_logging
start_logging("info", role="test")
log = get_log()
for n in range(50):
    log.info("something happened", n=n, odd={("a", "tuple"): object()})
drain_log()
print(dropped_lines())
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        log.info("in the fork")
        drain_log()
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


def test_a_full_disk_raises_nothing_and_is_counted() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            stderr=full,
            stdout=subprocess.PIPE,
            timeout=patient(60),
            check=True,
        )
    assert int(ended.stdout) == 50


def test_a_forked_process_logs_on() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "fork"],
        capture_output=True,
        timeout=patient(60),
        check=True,
        text=True,
    )
    assert ended.stdout.split() == ["0", "0"]
    # Python 3.12 warns of every fork of a process with threads.
    said = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    assert [line["event"] for line in said] == [*["something happened"] * 50, "in the fork"]


async def test_a_stuck_reader_blocks_nobody_and_is_told_what_it_missed() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb", buffering=0) as reader:
        log = LogStream(stream, max_waiting=10)
        line = "x" * 1000 + "\n"
        for _ in range(500):  # far more than the pipe and the queue hold
            log.write(line)
        assert log.dropped > 300
        missed = log.dropped
        came = b""
        os.set_blocking(reading, False)

        def read_on() -> bool:
            nonlocal came
            came += reader.read() or b""
            log.write("more\n")
            return b"more\n" in came

        await wait_until(read_on, "the log to go on")
        log.drain()
        told = [json.loads(part) for part in came.splitlines() if part.startswith(b"{")]
        assert told[0]["count"] >= missed
        assert came.count(line.encode()) == 500 - missed
