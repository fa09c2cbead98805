"""Where the `turnout` command starts. Ctrl-C is quiet from here on, also while modules are still being imported."""

import sys
from typing import Any, cast


def main() -> None:
    try:
        # httpx imports a command line of its own, and rich with it: a fifth of what most commands need to start.
        cast("dict[str, Any]", sys.modules)["httpx._main"] = None
        from turnout.cli.main import app

        app(prog_name="turnout")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
