"""Speaks to an engine's control paths: health, metrics, sleep, wake. Requests of users never pass here."""

import asyncio
import time
from typing import Any

import httpx

from turnout.engines.servers.engine_figure_rules import read_engine_figures
from turnout.engines.servers.engine_servers import Launch
from turnout.errors import Unavailable
from turnout.fleet.replica_rules import EngineFigures

_TICK_S = 0.1
_MAX_METRICS_BYTES = 2**20


class HttpEngine:
    """One client for all engines of a worker."""

    def __init__(self) -> None:
        # Proxies are for the way out, never for our own engines.
        self._client = httpx.AsyncClient(trust_env=False)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def healthy(self, launch: Launch, timeout_s: float) -> bool:
        """Whether the engine answers; a server without a health path is asked for its models."""
        try:
            status = await self._status(launch, launch.health_path, timeout_s)
            if status == 404:
                status = await self._status(launch, "/v1/models", timeout_s)
        except httpx.HTTPError:
            return False
        return status == 200

    async def figures(self, launch: Launch, timeout_s: float) -> EngineFigures | None:
        """What the engine tells of itself; None if it does not, or not in time. It may answer anything: nothing of that is an error."""
        body = bytearray()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client.stream(
                    "GET", f"http://{launch.address}/metrics", headers=_headers(launch), timeout=timeout_s
                ) as told,
            ):
                if told.status_code != 200:
                    return None
                async for piece in told.aiter_raw():  # as it came: nothing is unpacked
                    body += piece
                    if len(body) > _MAX_METRICS_BYTES:
                        return None
        except (httpx.HTTPError, TimeoutError):
            return None
        return read_engine_figures(body.decode(errors="replace"))

    async def sleep(self, launch: Launch, timeout_s: float) -> None:
        """Weights go to the host's memory, the cache is dropped (level 1)."""
        await self._post(launch, "/sleep?level=1", timeout_s)
        await self._until_sleeping(launch, True, timeout_s)

    async def wake(self, launch: Launch, timeout_s: float) -> None:
        await self._post(launch, "/wake_up", timeout_s)
        await self._until_sleeping(launch, False, timeout_s)

    async def _until_sleeping(self, launch: Launch, expected: bool, timeout_s: float) -> None:
        """Health says 200 even while the engine sleeps, and requests would hang: only /is_sleeping tells."""
        deadline = time.monotonic() + timeout_s
        while await self._is_sleeping(launch, timeout_s) is not expected:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"it did not {'fall asleep' if expected else 'wake'} within {timeout_s:g} s"
                )
            await asyncio.sleep(_TICK_S)

    async def _is_sleeping(self, launch: Launch, timeout_s: float) -> bool:
        answer = await self._call(launch, "GET", "/is_sleeping", timeout_s)
        try:
            body: Any = answer.json()
            return bool(body["is_sleeping"])
        except (ValueError, KeyError, TypeError) as err:
            raise Unavailable("it did not say whether it sleeps") from err

    async def _post(self, launch: Launch, path: str, timeout_s: float) -> None:
        await self._call(launch, "POST", path, timeout_s)

    async def _call(self, launch: Launch, method: str, path: str, timeout_s: float) -> httpx.Response:
        try:
            answer = await self._request(launch, method, path, timeout_s)
        except httpx.HTTPError as err:
            raise Unavailable(f"{path} was not answered: {type(err).__name__}") from err
        if answer.status_code >= 400:
            raise Unavailable(f"{path} was answered with {answer.status_code}: {answer.text[:200]}")
        return answer

    async def _status(self, launch: Launch, path: str, timeout_s: float) -> int:
        return (await self._request(launch, "GET", path, timeout_s)).status_code

    async def _request(self, launch: Launch, method: str, path: str, timeout_s: float) -> httpx.Response:
        url = f"http://{launch.address}{path}"
        return await self._client.request(method, url, headers=_headers(launch), timeout=timeout_s)


def _headers(launch: Launch) -> dict[str, str]:
    plain = {"accept-encoding": "identity"}
    return {**plain, "authorization": f"Bearer {launch.key}"} if launch.key else plain
