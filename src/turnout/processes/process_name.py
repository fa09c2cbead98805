"""What `ps`, `pgrep` and `top` call a process. A fork shows its parent's command line, which says nothing of what it has become."""

import contextlib
from pathlib import Path

_MOST = 15  # of the kernel


def name_process(name: str) -> None:
    """From now on this process is called `name`. To be called by its main thread. Linux only: elsewhere nothing happens."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:_MOST])
