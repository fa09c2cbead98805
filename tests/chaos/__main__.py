"""`python -m tests.chaos`: a long run with every fault. Progress goes to stderr, the account to stdout; Ctrl-C cleans up."""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from tests.chaos.faults import FAULTS, schedule
from tests.chaos.run import Plan, run_chaos
from tests.nat_box import behind_nat
from tests.s3 import running_s3


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__)
    parser.add_argument("--tasks", type=int, default=int(os.environ.get("CHAOS_TASKS", "1000")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CHAOS_SEED", "1")))
    parser.add_argument("--limit-s", type=float, default=float(os.environ.get("CHAOS_LIMIT_S", "5400")))
    parser.add_argument("--stacked", type=int, default=3, metavar="N", help="up to so many faults at once")
    parser.add_argument(
        "--chats", type=int, default=3, metavar="N", help="so many clients that chat meanwhile"
    )
    parser.add_argument(
        "--nat",
        action="store_true",
        help="workers behind a NAT, on a slow link that is cut at times (as root)",
    )
    names = [fault.name for fault in FAULTS]
    parser.add_argument(
        "--only", metavar="FAULT", action="append", choices=names, help="this one, and others so named"
    )
    parser.add_argument("--without", metavar="FAULT", action="append", choices=names, default=[])
    options = parser.parse_args()
    chosen = set(options.only or names) - set(options.without)
    faults = tuple(fault for fault in schedule(options.seed, box=options.nat) if fault.name in chosen)
    plan = Plan(
        options.tasks,
        faults,
        options.seed,
        clocks=True,
        limit_s=options.limit_s,
        between=(5, 15),
        stacked=options.stacked,
        chats=options.chats,
    )
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", file=sys.stderr, flush=True)

    home = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        with running_s3(home / "s3") as endpoint, behind_nat() if options.nat else nullcontext() as box:
            report = asyncio.run(run_chaos(plan, home, endpoint, say, box))
    except KeyboardInterrupt:
        say("stopped")
        shutil.rmtree(home, ignore_errors=True)
        return 130
    except BaseException:
        say(f"broke off; logs are in {home}")
        raise
    print(report.table(), flush=True)
    if report.wrong:
        say(f"logs are in {home}")
        return 1
    shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
