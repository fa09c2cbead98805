"""The manager's loop that looks after jobs on Kubernetes; it connects when it is first needed."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from turnout.errors import Unavailable
from turnout.fleet.fleet_settings import KubernetesJobs
from turnout.fleet.hosts.kubernetes.job_launcher import ClusterJobs, JobLauncher
from turnout.fleet.hosts.kubernetes.manifest_rules import GangTemplate, JobTerms
from turnout.fleet.manager_loop import MUTEX
from turnout.stores import Stores
from turnout.tasks.gang_tokens import GangTokens
from turnout.telemetry.log import get_log

_LOOK_EVERY_S = 2.0
_KEPT_S = 24 * 3600  # a kept gang takes no further task after so long: its token must end some day
_BEYOND_DRAIN_S = 15


@dataclass(slots=True)
class JobHost:
    """Works while the manager of this name decides on the fleet: that one publishes the `reasons`."""

    settings: KubernetesJobs | None
    drain_s: float
    stores: Stores
    manager: str
    launcher: JobLauncher | None = None

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why tasks of models wait whose jobs are in trouble."""
        return self.launcher.reasons if self.launcher else {}

    async def run(self) -> None:
        while self.settings is not None:
            try:
                if await self.stores.mutex.holder(MUTEX) == self.manager:
                    self.launcher = self.launcher or await _open(self.settings, self.drain_s, self.stores)
                    await self.launcher.look()
            except Unavailable as err:
                get_log().warning("jobs not looked after, trying again", error=str(err))
            await asyncio.sleep(_LOOK_EVERY_S)


async def _open(settings: KubernetesJobs, drain_s: float, stores: Stores) -> JobLauncher:
    grace_s = int(drain_s) + _BEYOND_DRAIN_S
    stays_s = _KEPT_S if settings.keep_s else 0
    terms = JobTerms(
        settings.launcher,
        settings.kind,
        settings.gateway_url,
        settings.deadline_s,
        stays_s + settings.deadline_s + int(settings.pending_s) + grace_s,
        max(settings.ttl_s, int(settings.pending_s)),  # jobs that ended are all that is known of failures
        grace_s,
        keep_s=settings.keep_s,
        stays_s=stays_s,
        labels=settings.labels,
        annotations=settings.annotations,
    )
    jobs = ClusterJobs(terms, settings.namespace)
    if settings.owner is not None:
        terms = replace(terms, owner=await jobs.find_owner(settings.owner))
    gangs = {name: GangTemplate(gang.pods, gang.template) for name, gang in settings.gangs.items()}
    return JobLauncher(
        jobs,
        terms,
        partial(_tokens, stores),
        gangs,
        stores.fleet.models,
        stores.backlog,
        stores.tasks,
        stores.queue,
        settings.pending_s,
    )


async def _tokens(stores: Stores) -> GangTokens:
    """With the secret of now: it is another one when Redis has lost its data."""
    return GangTokens(await stores.share_links.url_secret())
