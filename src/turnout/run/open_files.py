"""The number of files and sockets that a process may have open."""

import resource

_WANTED = 65_536


def raise_open_files() -> int:
    """Raises the limit as far as this user may, for this process and its children; returns it. Many systems begin with
    1024, which a few hundred idle clients use up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return _WANTED if soft == resource.RLIM_INFINITY else soft
