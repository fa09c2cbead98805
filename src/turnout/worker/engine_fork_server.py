"""Engines that start with their imports already done: forks of one process that did them once.

Nearly all of the start of vLLM, and of a gang, is Python imports. A worker may keep a *fork server*: a process of the
engine's own Python that has imported everything and runs nothing. An engine is then a fork of it, under a subreaper of
its own that is a fork, too.

    ENGINE_PYTHON engine_fork_server.py keep SOCKET MODULE…               imports, then forks for whoever asks
    python -m turnout.worker.engine_fork_server ask SOCKET ENTRY ARG…     stands for such an engine: has its output and its end
    python -m turnout.worker.engine_fork_server prefer SOCKET ENTRY ARG…  the same; without a fork server it is `turnout ARG…`

The one who asks is what the worker starts and watches, as if it were the engine. A SIGTERM to it is passed on; when
it dies, so does the engine. When the fork server dies, its engines stay. Only the standard library is imported here: the
engine's Python has no other part of ours.
"""

import gc
import importlib
import importlib.util
import json
import multiprocessing.context
import os
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import NoReturn

ALWAYS_FORK = "TURNOUT_ENGINE_ALWAYS_FORKS"  # in an engine's environment
_MAX_WORDS_BYTES = 1 << 20
_PATIENCE_S = 120.0  # for the fork server's imports
_POLL_S = 0.1
_LENGTH = struct.Struct("!I")
_STATUS = struct.Struct("!i")
_BEGUN = b"\1"


def keep(path: str, modules: list[str]) -> NoReturn:
    """Whoever asks while the imports are under way waits for them."""
    subreaper = _subreaper()
    if sys.path[0] == str(Path(__file__).parent):  # begun as a file: our modules are not for the engine
        sys.path.pop(0)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    Path(path).unlink(missing_ok=True)
    mask = os.umask(0o077)
    listening.bind(path)
    os.umask(mask)
    listening.listen(64)
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as err:  # noqa: BLE001 a GPU's part, say, which no engine on this machine needs
            print(f"fork server left out {module}: {err}", flush=True)
    gc.collect()
    gc.freeze()  # or a collection in a fork would copy every page it looks at
    print("fork server is ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are nobody's to wait for
    while True:
        asker, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _guard(asker, subreaper)
        asker.close()


def _guard(asker: socket.socket, subreaper: ModuleType) -> NoReturn:
    """Starts the engine that was asked for and tells its end to the asker."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    try:
        asker.settimeout(10.0)
        argv, environ, outputs = _receive(asker)
        asker.sendall(_BEGUN)
        status = subreaper.run_under(lambda: _engine(argv, environ, outputs, asker), asker)
        asker.setblocking(True)
        asker.sendall(_STATUS.pack(status))
    finally:
        os._exit(0)


def _engine(argv: list[str], environ: dict[str, str], outputs: list[int], asker: socket.socket) -> NoReturn:
    """The engine itself: its own words, variables and outputs, in a process that has all imports."""
    asker.close()
    code = 1
    try:
        for number, fd in enumerate(outputs, start=1):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(environ)
        if ALWAYS_FORK in os.environ:
            _fork_instead_of_spawning()
        entry, *arguments = argv
        module, _, function = entry.partition(":")
        sys.argv = [module.partition(".")[0], *arguments]
        getattr(importlib.import_module(module), function)()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except Exception:  # noqa: BLE001 nobody is above to hear of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _fork_instead_of_spawning() -> None:
    """vLLM insists on spawning on a CPU; a spawned process would do all imports once more."""
    contexts = multiprocessing.context._concrete_contexts  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    contexts["spawn"] = contexts["fork"]


def ask(path: str, argv: list[str]) -> NoReturn:
    """Ends as the engine ends. A fork server that is being started again is waited for."""
    link = _connect(path, _PATIENCE_S)
    if link is None:
        sys.exit(f"no fork server answers at {path}")
    if not _begins(link, argv):
        sys.exit("the fork server ended before the engine began")
    _end_as_it(link)


def prefer(path: str, argv: list[str]) -> NoReturn:
    """As `ask`; where no fork server answers, it becomes the program itself."""
    link = _connect(path, 0.0)
    if link is None or not _begins(link, argv):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, "-m", "turnout", *argv[1:]])
    _end_as_it(link)


def _begins(link: socket.socket, argv: list[str]) -> bool:
    """Sends what is asked for; False when the fork server ended instead."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: link.sendall(b"\0"))
    said = json.dumps({"argv": argv, "environ": dict(os.environ)}).encode()
    try:
        socket.send_fds(link, [_LENGTH.pack(len(said))], [1, 2])
        link.sendall(said)
        return link.recv(len(_BEGUN)) == _BEGUN
    except OSError:
        return False


def _end_as_it(link: socket.socket) -> NoReturn:
    status = b""
    while len(status) < _STATUS.size:
        part = link.recv(_STATUS.size - len(status))
        if not part:
            sys.exit("the engine's guard was killed, and the engine with it")
        status += part
    _subreaper().end_as(_STATUS.unpack(status)[0])
    raise AssertionError("it has ended")


def _connect(path: str, patience_s: float) -> socket.socket | None:
    late = time.monotonic() + patience_s
    while True:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.connect(path)
            return link
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            link.close()
            if time.monotonic() >= late:
                return None
            time.sleep(_POLL_S)


def _receive(asker: socket.socket) -> tuple[list[str], dict[str, str], list[int]]:
    head, outputs, _, _ = socket.recv_fds(asker, _LENGTH.size, 2)
    (length,) = _LENGTH.unpack(head)
    if length > _MAX_WORDS_BYTES or len(outputs) != 2:
        raise ValueError("not a request for an engine")
    said = bytearray()
    while len(said) < length:
        part = asker.recv(length - len(said))
        if not part:
            raise ValueError("the asker left")
        said += part
    words = json.loads(said)
    return words["argv"], words["environ"], outputs


def _subreaper() -> ModuleType:
    """By its path: `turnout` is not there to import in the engine's Python."""
    spec = importlib.util.spec_from_file_location(
        "turnout_subreaper", Path(__file__).with_name("subreaper.py")
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    role, where, *rest = sys.argv[1:]
    {"keep": keep, "ask": ask, "prefer": prefer}[role](where, rest)
