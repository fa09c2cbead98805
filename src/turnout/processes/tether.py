"""Runs a command that dies with its parent: `python -m turnout.processes.tether PARENT_PID COMMAND…`.

The kernel kills the command when the parent dies, however it dies; a stopped (SIGSTOP) child dies too, which
no pipe or heartbeat could do. The setting survives exec. Linux only: elsewhere the command runs untethered.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tether(parent: int) -> None:
    """From now on this process is killed when `parent` dies; at once, if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    tether(parent)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
