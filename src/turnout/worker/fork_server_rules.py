"""Whether a worker keeps a process with the imports of gangs, by the memory that is left. Pure."""

_GIB = 2**30
_ENOUGH_BYTES = 4 * _GIB  # free before it is started; it takes 0.3 GiB, with CUDA's libraries about 1
_TOO_LITTLE_BYTES = 1 * _GIB  # free while it is kept


def keeps(free_bytes: int, kept: bool) -> bool:
    """Between the two bounds all stays as it is, so that it does not come and go."""
    return free_bytes >= (_TOO_LITTLE_BYTES if kept else _ENOUGH_BYTES)
