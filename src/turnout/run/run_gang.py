"""Runs the supervisor of ranks that are child processes: a whole gang on one machine, or one pod's ranks of a larger one."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from turnout.gang.exit_codes import ExitCode
from turnout.gang.rank_place import Pod, RankDuties
from turnout.gang.supervisor import GangSupervisor, gang_orders
from turnout.processes.life_signs import giving_signs
from turnout.run.config import Config
from turnout.run.forked_ranks import ForkedRanks
from turnout.run.gang_service import open_api
from turnout.run.signals import on_stop

SCRATCH = "gangs"
"""In the state directory."""


@dataclass(frozen=True, slots=True)
class ProbeFiles:
    """What a supervisor tells whoever started it: `ready` is made once the model is loaded, `alive` is touched for as long as the
    supervisor watches over its ranks."""

    ready: Path | None = None
    alive: Path | None = None


async def run_gang(config: Config, duties: RankDuties, files: ProbeFiles) -> int:
    """A worker's gang."""
    pod = Pod(0, 1, config.model(duties.model).gang.ranks, None)
    ranks = ForkedRanks(config, duties, pod, config.state_dir / "logs")
    return await _supervise(config, duties, pod, ranks, files, reforms=True)


async def run_pod(config: Config, duties: RankDuties, pod: Pod, files: ProbeFiles) -> int:
    """The ranks that one pod has. What they print comes out here; when one breaks, all end, and the pod with them."""
    ranks = ForkedRanks(config, duties, pod, None)
    return await _supervise(config, duties, pod, ranks, files, reforms=False)


async def _supervise(
    config: Config,
    duties: RankDuties,
    pod: Pod,
    ranks: ForkedRanks,
    files: ProbeFiles,
    *,
    reforms: bool,
) -> int:
    orders = gang_orders(
        config.gangs, config.model(duties.model), duties.gang, pod.local_ranks, reforms=reforms
    )
    orders = replace(orders, scratch=config.state_dir / SCRATCH)
    async with open_api(duties.service) if duties.service else nullcontext() as api:
        supervisor = GangSupervisor(orders, ranks, api, lambda: files.ready.touch() if files.ready else None)
        on_stop(supervisor.stop)
        with giving_signs(files.alive):
            code = await supervisor.run()
        return code if duties.once else ExitCode.COMPLETED  # only a gang for one task has a verdict to tell
