"""The log: one line a transition, with fields. Configured once, where a process starts."""

import logging
import sys
from typing import Any, cast

import structlog


def start_logging(level: str, **fields: Any) -> None:
    """Readable lines on a terminal, JSON otherwise; `fields` are on every line of this process."""
    # Ray Serve replaces a replica's stderr by a stream that claims to be a terminal.
    human = sys.stderr is sys.__stderr__ and sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if human else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(**fields)


def name_request(request_id: str) -> None:
    """Puts the id on every line that is logged for this request from now on."""
    structlog.contextvars.bind_contextvars(request=request_id)


def name_attempt(task: str, attempt: int) -> None:
    """Puts both on every line that this thread logs from now on."""
    structlog.contextvars.bind_contextvars(task=task, attempt=attempt)


def get_log() -> structlog.typing.FilteringBoundLogger:
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger())
