"""`python -m turnout.worker …` is `turnout worker …`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv[1:1] = ["worker"]
    runpy.run_module("turnout", run_name="__main__", alter_sys=True)
