"""Wires the launcher that makes Kubernetes jobs for tasks; it connects when it is first needed."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from turnout.fleet.fleet_settings import KubernetesJobs
from turnout.fleet.hosts.kubernetes.job_launcher import ClusterJobs, JobLauncher
from turnout.fleet.hosts.kubernetes.manifest_rules import GangTemplate, JobTerms
from turnout.run.stores import Stores

_BEYOND_DRAIN_S = 15


def launch_chore(
    settings: KubernetesJobs | None, drain_s: float, stores: Stores
) -> Callable[[], Awaitable[None]] | None:
    """What the manager at work repeats; None when there are no jobs to make."""
    if settings is None:
        return None
    opened: list[JobLauncher] = []

    async def look() -> None:
        if not opened:
            opened.append(await _open(settings, drain_s, stores))
        await opened[0].look()

    return look


async def _open(settings: KubernetesJobs, drain_s: float, stores: Stores) -> JobLauncher:
    grace_s = int(drain_s) + _BEYOND_DRAIN_S
    terms = JobTerms(settings.launcher, settings.kind, settings.deadline_s, settings.ttl_s, grace_s)
    jobs = ClusterJobs(terms, settings.namespace)
    if settings.owner is not None:
        terms = replace(terms, owner=await jobs.find_owner(settings.owner))
    gangs = {name: GangTemplate(gang.pods, gang.template) for name, gang in settings.gangs.items()}
    return JobLauncher(jobs, terms, gangs, stores.models, stores.backlog, stores.tasks, settings.pending_s)
