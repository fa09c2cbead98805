"""The log: one line a transition, with fields. Configured once, where a process starts.

To log never raises and never waits: a thread of its own writes the lines. What cannot be written (the disk is full), or
comes while too many lines wait (the reader of a pipe is stuck), is dropped and counted.
"""

import atexit
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO, cast

import structlog

_MAX_WAITING = 10_000
_MAX_CHARS = 64 * 1024
_DRAIN_S = 2.0
_GATHER_S = 0.01  # lines that follow one this closely wait: to be woken for each takes the interpreter from the event loop
_TOGETHER_CHARS = (
    2048  # lines are written together up to here: what a pipe takes at once, others' lines cannot divide
)


class LogStream:
    """Stands where a logger expects a text stream. `dropped` counts the lines that nobody will see."""

    def __init__(self, stream: TextIO, max_waiting: int = _MAX_WAITING) -> None:
        self._stream = stream
        self._file = _file_of(stream)
        self._max_waiting = max_waiting
        self.dropped = 0
        self._untold = 0  # of these, since a line was last written
        self._start()
        # A fork has none of our threads, and may have copied the queue's lock while it was held.
        os.register_at_fork(after_in_child=self._start)

    def write(self, line: str) -> None:
        try:
            self._lines.put_nowait(line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…\n")
        except queue.Full:
            self._drop()

    def flush(self) -> None:
        """The thread does, after each line."""

    def drain(self, limit_s: float = _DRAIN_S) -> None:
        """Waits until what was logged is written, before a process ends; gives up after `limit_s`."""
        lines = self._lines
        with lines.all_tasks_done:
            lines.all_tasks_done.wait_for(lambda: not lines.unfinished_tasks, limit_s)

    def _start(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue(self._max_waiting)
        threading.Thread(target=self._write_lines, args=(self._lines,), name="log", daemon=True).start()

    def _write_lines(self, lines: queue.Queue[str]) -> None:
        while True:
            gathered = [lines.get()]
            size = len(gathered[0])
            while size < _TOGETHER_CHARS and not lines.empty():
                gathered.append(lines.get())  # nobody else takes any
                size += len(gathered[-1])
            try:
                untold = self._untold
                told = f'{{"event": "log lines dropped", "level": "warning", "count": {untold}}}\n'
                self._put("".join([told, *gathered] if untold else gathered))
                self._untold -= untold
            except Exception:  # noqa: BLE001 - no space, a closed pipe or stream: the process goes on without its log
                self._drop(len(gathered))
            finally:
                for _ in gathered:
                    lines.task_done()
            if lines.empty():
                time.sleep(_GATHER_S)

    def _put(self, lines: str) -> None:
        """Past Python's buffer, where there is a file: what a full disk did not take would stay in it, and change the exit code."""
        if self._file is None:
            self._stream.write(lines)
            self._stream.flush()
            return
        data = lines.encode(errors="replace")
        while data:
            data = data[os.write(self._file, data) :]

    def _drop(self, lines: int = 1) -> None:
        self.dropped += lines
        self._untold += lines


def _file_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # a stream of a test, or Ray's
        return None


class _FromLibraries(logging.Handler):
    """Puts what libraries log (asyncio, uvicorn, websockets) into the same log."""

    def emit(self, record: logging.LogRecord) -> None:
        get_log().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


_JSON = json.JSONEncoder(default=repr)


def _as_json(logger: Any, method: str, event: structlog.typing.EventDict) -> str:
    return _JSON.encode(event)


def _never_raising(render: structlog.typing.Processor) -> structlog.typing.Processor:
    def rendered(logger: Any, method: str, event: structlog.typing.EventDict) -> Any:
        name = event.get("event")
        try:
            return render(logger, method, event)
        except Exception as err:  # noqa: BLE001 - a field that cannot be written out: say at least what happened
            return json.dumps({"event": str(name), "level": method, "unwritable": type(err).__name__})

    return rendered


_streams: list[LogStream] = []
"""Of this process, the last one in use; structlog's configuration is global as well."""
_bound: list[
    Any
] = []  # the logger, once it is configured: to make one for each line costs as much as the line


_process_fields: dict[str, Any] = {}  # on every line of this process, whichever thread or task writes it
_named: ContextVar[Mapping[str, Any]] = ContextVar("named", default=MappingProxyType({}))


def _completed(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """With what is known of the process, of the request or attempt, and of the moment."""
    for fields in (_named.get(), _process_fields):
        for name, value in fields.items():
            event.setdefault(name, value)
    event["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return event


# Until then, and in commands that never call it: what goes to standard output is for programs that read it.
structlog.configure(
    processors=[_completed, *structlog.get_config()["processors"]],
    logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
)


def start_logging(level: str, **fields: Any) -> None:
    """Readable lines on a terminal, JSON otherwise; `fields` are on every line of this process."""
    # Ray Serve replaces a replica's stderr by a stream that claims to be a terminal.
    human = sys.stderr is sys.__stderr__ and sys.stderr.isatty()
    stream = LogStream(sys.stderr)
    _streams.append(stream)
    structlog.configure(
        processors=[
            _completed,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _never_raising(structlog.dev.ConsoleRenderer() if human else _as_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", stream)),
    )
    _bound[:] = [structlog.get_logger().bind()]
    _process_fields.clear()
    _process_fields.update(fields)
    if not logging.root.handlers:
        logging.root.addHandler(_FromLibraries(logging.WARNING))
    atexit.register(stream.drain)


def drain_log() -> None:
    """Waits a moment until what was logged is written: for ends of a process that skip the interpreter's own."""
    for stream in _streams[-1:]:
        stream.drain()


def dropped_lines() -> int:
    """How many lines of this process's log were lost."""
    return sum(stream.dropped for stream in _streams)


def name_process(**fields: Any) -> None:
    """Puts what became known later (a worker's id) on every line of this process from now on."""
    _process_fields.update(fields)


def name_request(request_id: str, trace: str | None = None) -> None:
    """Puts the ids on every line that is logged for this request from now on."""
    _named.set({"request": request_id, "trace": trace} if trace else {"request": request_id})


def name_attempt(task: str, attempt: int, trace: str | None = None) -> None:
    """Puts them on every line that this thread logs from now on."""
    before = {name: value for name, value in _named.get().items() if name != "trace"}
    _named.set({**before, "task": task, "attempt": attempt, **({"trace": trace} if trace else {})})


def name_gang(gang: str) -> None:
    """The same for the gang, once its ranks have agreed on a name."""
    _named.set({**_named.get(), "gang": gang})


def get_log() -> structlog.typing.FilteringBoundLogger:
    return cast("structlog.typing.FilteringBoundLogger", _bound[0] if _bound else structlog.get_logger())
