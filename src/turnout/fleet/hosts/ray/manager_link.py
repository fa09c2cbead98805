"""How a gang's leader speaks with the manager's actor, which may be on its way, or replaced."""

import asyncio
import time
from typing import Any, cast

from ray.exceptions import RayError

from turnout.errors import Misconfigured
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.hosts.ray.manager_actor import find_manager, ray
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log

log = get_log()

_ANSWER_S = 10.0
_COMING_S = 60.0
_AGAIN_S = 1.0


class ManagerLink:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._manager: Any = None

    async def gang_token(self, model: str, gang: GangId) -> str:
        """Waits for a manager. Raises Misconfigured."""
        deadline = time.monotonic() + _COMING_S
        while True:
            token = await self._ask("gang_token", model, gang)
            if token is not None:
                return cast("str", token)
            if time.monotonic() > deadline:
                raise Misconfigured("no manager on this cluster gave the gang a right to work")
            await asyncio.sleep(_AGAIN_S)

    async def tell(self, gang: GangId, report: GangReport | None) -> None:
        """What it does not hear now it hears the next time."""
        await self._ask("tell", ray.get_runtime_context().current_actor, gang, report)

    async def _ask(self, method: str, *words: object) -> object:
        """None when there is no answer."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                self._manager = self._manager or await asyncio.to_thread(find_manager, self._namespace)
                if self._manager is not None:
                    return await getattr(self._manager, method).remote(*words)
        except (RayError, TimeoutError) as err:
            log.warning("manager did not answer", asked=method, error=str(err)[:300])
            self._manager = None
        return None
