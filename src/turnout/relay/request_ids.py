"""Ids of requests: those of one process begin alike, and no two are the same."""

import itertools
import secrets

_PREFIX = f"req-{secrets.token_hex(6)}".encode()
_numbers = itertools.count(1)


def new_request_id() -> bytes:
    return b"%b%x" % (_PREFIX, next(_numbers))
