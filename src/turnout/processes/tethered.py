"""Importing this module tethers the process to its parent. The fork server imports it first.

The standard library's fork server waits for its owner's end of a pipe to close, but hands that end to every
child it forks; so it would outlive its owner as long as a child lives.
"""

import os

from turnout.processes.tether import tether

tether(os.getppid())
