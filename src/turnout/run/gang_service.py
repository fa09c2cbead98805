"""How a gang's processes come by the access to their service: from a private file that whoever started them wrote, or with a
worker key that opens a gang."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from turnout.backoff import backoff_s
from turnout.errors import Misconfigured, NotFound, Unauthorized, Unavailable
from turnout.gang.gang_api import GangApi, ServiceAccess
from turnout.run.client_tls import client_tls, pinned_tls, read_fingerprints
from turnout.run.joining import Joining, check_joining
from turnout.run.state_dir import write_private
from turnout.tasks.gang_messages import GANG_TOKEN, GangOpening
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log

_ACCESS = TypeAdapter(ServiceAccess)
T = TypeVar("T")
_OPEN_S = 600.0  # for a gateway to answer; pods start in any order


def write_access(path: Path, access: ServiceAccess) -> None:
    write_private(path, json.dumps(asdict(access)))


def read_access(path: Path) -> ServiceAccess:
    """Raises Misconfigured."""
    try:
        return _ACCESS.validate_json(path.read_text())
    except (OSError, ValueError) as err:
        raise Misconfigured(f"{path} does not say how to reach the service: {err}") from err


def access_tls(access: ServiceAccess) -> ssl.SSLContext:
    if access.fingerprints:
        return pinned_tls(read_fingerprints(access.fingerprints))
    return client_tls(Path(access.ca_file) if access.ca_file else None)


def new_api(access: ServiceAccess) -> GangApi:
    return GangApi(access.url, access.token, access_tls(access))


@asynccontextmanager
async def open_api(access: ServiceAccess) -> AsyncGenerator[GangApi]:
    api = new_api(access)
    try:
        yield api
    finally:
        await api.aclose()


async def join_gang(
    joining: Joining, ca_file: Path | None, model: str, name: str
) -> tuple[GangId, ServiceAccess]:
    """The gang that a process is to lead: one that is opened with a worker key, or the one that its token is of, called `name`.
    An earlier process of that one may have died, or still live where nobody sees it: what it holds waits again, which costs the task
    an attempt, and it can write nothing more. Waits for a gateway to answer. Raises Misconfigured."""
    check_joining(joining)
    access = ServiceAccess(joining.url, joining.key, str(ca_file) if ca_file else None, joining.fingerprints)
    async with open_api(access) as api:
        if joining.key.startswith(GANG_TOKEN):
            await _answered(lambda: api.give_back("the gang's process was started again", counts=True))
            return GangId(name), access
        opened = await _answered(lambda: api.open_gang(GangOpening(model=model, name=name)))
        return opened.gang, replace(access, token=opened.token)


async def _answered(call: Callable[[], Awaitable[T]]) -> T:
    deadline = time.monotonic() + _OPEN_S
    for failures in count(1):
        try:
            return await call()
        except (Unauthorized, NotFound) as err:
            raise Misconfigured(f"the gateway takes no gang of this one: {err}") from err
        except Unavailable as err:
            if time.monotonic() > deadline:
                raise
            get_log().warning("no gateway answered, trying again", error=str(err))
            await asyncio.sleep(backoff_s(failures, 0.2, 5.0))
    raise AssertionError
