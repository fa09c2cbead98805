"""Whether processes may take as much address space as the service needs."""

import resource

from turnout.errors import Misconfigured

_LEAST_BYTES = (
    2**30
)  # with less, threads and libraries of one part or another fail at some moment, with errors that tell nothing


def check_address_space() -> None:
    """Raises Misconfigured."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < _LEAST_BYTES:
        raise Misconfigured(
            f"processes may take {allowed // 2**20} MiB of address space here (ulimit -v), and Turnout needs "
            f"{_LEAST_BYTES // 2**20} MiB in each, ranks with torch far more: raise the limit, or take it away (ulimit -v unlimited)"
        )
