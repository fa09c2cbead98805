"""Takes requests away from workers that are not heard any more.

A worker that hangs still takes connections, and answers none. The manager marks its routes suspect, so no new request goes
there. A request that is there already goes to another replica once its own has said nothing for `QUIET_S`; if its client has
seen a part of the answer, it ends. A stream that still flows is left alone: only the worker's heartbeats may be lost.
"""

import asyncio
from collections.abc import Callable, Collection

from turnout.fleet.machine_rules import WorkerId
from turnout.relay import Relay, UpstreamCall
from turnout.telemetry.log import get_log

QUIET_S = 15.0
_LOOK_S = 1.0

log = get_log()


class SilentWorkers:
    """`suspects` are the workers whose routes are suspect now, `heard` those with a route that is not. A worker whose routes are
    gone is as silent as it was."""

    def __init__(
        self,
        relay: Relay,
        suspects: Callable[[], Collection[WorkerId]],
        heard: Callable[[], Collection[WorkerId]],
        worker_of: Callable[[UpstreamCall | None], WorkerId | None],
        quiet_s: float = QUIET_S,
    ) -> None:
        self._relay = relay
        self._suspects = suspects
        self._heard = heard
        self._worker_of = worker_of
        self._quiet_s = quiet_s
        self._silent: set[WorkerId] = set()

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        suspects = self._suspects()
        if not suspects and not self._silent:  # nearly always
            return
        self._silent.update(suspects)
        self._silent.difference_update(self._heard())
        asking: set[WorkerId] = set()
        for request in tuple(self._relay.requests):
            worker = self._worker_of(request.call)
            if worker is None or worker not in self._silent:
                continue
            asking.add(worker)
            if request.quiet_s >= self._quiet_s:
                log.warning("request taken from a silent worker", worker=worker)
                request.lose_replica()
        self._silent &= {*asking, *suspects}
