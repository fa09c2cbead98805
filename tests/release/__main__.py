"""Tries what `./dev dist` built: each way in from nothing, and the release before this one up and back. `--only` names some.

Packages come from a folder, what they need from the index that uv and pip use here. Nothing of the checkout is lent to them.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from _pytest.outcomes import Failed

from tests.release.installed import Installed, environ
from tests.release.neighbours import Neighbours, last_release, wheel_of
from tests.release.ways_in import WAYS, bundle


def neighbours(there: Installed, packages: Path) -> str:
    old = wheel_of(last_release(), there)
    there.install("turnout[local]")  # its parts; Turnout itself is changed for each step
    return asyncio.run(Neighbours(there).run(old, next(packages.glob("turnout-*.whl"))))


BY_PACKAGES = {"neighbours": neighbours, "bundle": bundle}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev dist", description=__doc__, allow_abbrev=False)
    parser.add_argument("packages", type=Path)
    parser.add_argument("--only", choices=[*WAYS, *BY_PACKAGES], action="append")
    asked = parser.parse_args()
    packages, failed = asked.packages.resolve(), 0
    for name in [name for name in os.environ if name.startswith("TURNOUT_")]:
        del os.environ[name]  # what the tests set, and earlier releases need not know
    for name in asked.only or [*WAYS, "neighbours"]:
        with tempfile.TemporaryDirectory(prefix=f"turnout-{name}-") as folder:
            there = Installed(Path(folder) / name, environ(packages))
            began = time.monotonic()
            try:
                told = BY_PACKAGES[name](there, packages) if name in BY_PACKAGES else WAYS[name](there)
            except (AssertionError, OSError, Failed) as err:
                failed += 1
                told = f"FAILED: {err}"
            print(f"{name:12}{time.monotonic() - began:5.0f} s {there.megabytes:6} MB  {told}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
