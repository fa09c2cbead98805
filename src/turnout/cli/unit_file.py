"""`--print-unit`: a command as a unit of systemd, so that it comes back after a reboot."""

import getpass
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from turnout.errors import Misconfigured

PRINT_UNIT = "--print-unit"
_TERMINAL = {
    PRINT_UNIT,
    "-d",
    "--detach",
}  # systemd watches the process itself: one that went away would be ended
_BEYOND_DRAIN_S = 90  # for parts that end one after the other
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def unit_file(what: str, words: Sequence[str], state_dir: Path, drain_s: float) -> str:
    """The command `turnout WORDS` of this installation, as this user and in this folder, with the data where it is now. Variables
    of this shell are not in it: anyone can read a unit, and some hold passwords. Words that hold one are refused."""
    if any(_has_password(word) for word in words) or "--key" in words:
        raise Misconfigured("anyone can read a unit: put what has a password into /etc/turnout/environment")
    if any(word.split("=")[0] == "--demo" for word in words):
        raise Misconfigured("--demo is for a terminal: a unit would render it at every start, and end")
    argv = [sys.executable, "-m", "turnout", *(word for word in words if word not in _TERMINAL)]
    if not any(word == "--state-dir" or word.startswith("--state-dir=") for word in words):
        argv += ["--state-dir", str(state_dir)]
    return f"""\
[Unit]
Description=Turnout, {what}
After=network-online.target
Wants=network-online.target

[Service]
User={getpass.getuser()}
WorkingDirectory={_escaped(str(Path.cwd()))}
ExecStart={" ".join(map(_quoted, argv))}
EnvironmentFile=-/etc/turnout/environment
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec={drain_s + _BEYOND_DRAIN_S:.0f}
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=full
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def _has_password(word: str) -> bool:
    return word.startswith("--key=") or bool(re.search(r"://[^/@]*:[^/@]+@", word))


def _escaped(word: str) -> str:
    return word.replace("%", "%%")


def _quoted(word: str) -> str:
    """As one word of systemd, which reads quotes, backslashes, $ and % in a way of its own."""
    escaped = _escaped(word).replace("$", "$$")
    if _PLAIN.fullmatch(escaped):
        return escaped
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
