"""Where a gang begins that is a fork of its worker's fork server: torch and the engine are imported already.

Before anything else its own fork server for ranks is forked off: from a process with one thread, in which nothing has begun.
"""

from turnout.processes.fork_server import serve_from_here


def main() -> None:
    from turnout.__main__ import main as command

    serve_from_here()
    command()
