"""`python -m benchmarks [NAME…]`: runs each benchmark and prints its table; progress goes to stderr."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import uvloop

from benchmarks import (
    disk_reads,
    estimates,
    events,
    fork_server,
    gang,
    gangs,
    guests,
    hop,
    manager,
    metrics,
    overlap,
    plan,
    plan_reality,
    ray,
    relay,
    submit,
    wan,
    wan_attention,
    warm_start,
)
from benchmarks.figures import Table, say

Measure: TypeAlias = Callable[[], Coroutine[Any, Any, Table]]

BENCHMARKS: dict[str, Measure] = {
    "submit": submit.measure,
    "events": events.measure,
    "estimates": estimates.measure,
    "warm_start": warm_start.measure,
    "disk_reads": disk_reads.measure,
    "gang": gang.measure,
    "gangs": gangs.measure,
    "guests": guests.measure,
    "relay": relay.measure,
    "hop": hop.measure,
    "manager": manager.measure,
    "metrics": metrics.measure,
    "plan": plan.measure,
    "plan_reality": plan_reality.measure,
    "fork_server": fork_server.measure,
    "ray": ray.measure,
    "wan": wan.measure,
    "wan_attention": wan_attention.measure,
    "overlap": overlap.measure,
}
COMPARING = {"submit": submit.measure, "events": events.measure, "relay": relay.measure}
"""Those that can measure another checkout in the same run."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    about = "; ".join(f"{name}: {summary(run)}" for name, run in BENCHMARKS.items())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all). {about}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="DIR",
        help=f"another checkout to measure as well ({', '.join(COMPARING)})",
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    report: dict[str, object] = {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    for name in options.names or BENCHMARKS:
        say(f"{name}: {summary(BENCHMARKS[name])}")
        compared = options.beside is not None and name in COMPARING
        table = uvloop.run(COMPARING[name](beside=options.beside) if compared else BENCHMARKS[name]())
        print(table.text(), flush=True)
        report[name] = table.as_json()
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def summary(run: Measure) -> str:
    return (run.__doc__ or "").strip().splitlines()[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
