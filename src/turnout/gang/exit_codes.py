"""What a process that renders one task ends with, so that whoever started it need not ask what became of it. Pure."""

from enum import IntEnum

from turnout.tasks.task_rules import State


class ExitCode(IntEnum):
    """1 and 2 are those of every command: something broke, and the call or the configuration is wrong."""

    COMPLETED = 0
    """The task was rendered, or there was nothing more to do."""
    FAILED = 3
    """The task failed for good; another try gives the same."""
    CANCELLED = 4
    """The task was cancelled, or is gone."""
    GIVEN_BACK = 5
    """The task waits again: this process was told to leave, or its attempt died."""
    HELD = 6
    """Another gang renders the task."""


LEFT = frozenset(ExitCode)
"""A rank that ends with one of these has left as it was told; with any other its gang is broken."""

_VERDICTS = {
    State.COMPLETED: ExitCode.COMPLETED,
    State.FAILED: ExitCode.FAILED,
    State.CANCELLED: ExitCode.CANCELLED,
    State.QUEUED: ExitCode.GIVEN_BACK,
    State.IN_PROGRESS: ExitCode.HELD,
}


def verdict(state: State | None) -> ExitCode:
    """What is said of a task in this state; None: it is gone."""
    return ExitCode.CANCELLED if state is None else _VERDICTS[state]
