"""A process is found by what it is called."""

import subprocess
import sys

import psutil

WORDS = """
from turnout.processes.process_name import name_process
name_process("turnout-rank-123456")
print("named", flush=True)
input()
"""


def test_a_process_is_called_what_it_says_as_far_as_the_kernel_takes_it() -> None:
    with subprocess.Popen([sys.executable, "-c", WORDS], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdin and child.stdout and child.stdout.readline() == "named\n"
        assert psutil.Process(child.pid).name() == "turnout-rank-12"
        child.communicate("\n", timeout=30)
