"""How long tasks take here, learned from those that ended; owns the guesses shown as `eta_s`."""

from turnout.tasks.task_rules import Finished, Recorded, State, Task

_WEIGHT = 0.3  # of the newest task in the running mean


def _work(task: Task) -> float:
    """What a task costs, up to a factor that belongs to the model: steps times pixels."""
    spec = task.spec
    return float(spec.steps * spec.width * spec.height * spec.frames)


class TimeEstimates:
    """Seconds per unit of work, a running mean for each model. Knows nothing until the first task has ended."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def observe(self, recorded: Recorded, task: Task | None) -> None:
        """Learns from a task that was completed at the first attempt."""
        if task is None or not isinstance(recorded.event, Finished):
            return
        if task.finished_at is None or task.started_at is None or task.failures:
            return
        took = (task.finished_at - task.started_at) / _work(task)
        before = self._seconds.get(task.model, took)
        self._seconds[task.model] = before + _WEIGHT * (took - before)

    def seconds_per_work(self, model: str) -> float | None:
        """For a unit of work: steps times pixels of all frames."""
        return self._seconds.get(model)

    def eta_s(self, task: Task, position: int | None, gangs: int, now: float) -> float | None:
        """Seconds until the task ends, as far as anyone can say; those before it are taken to be like it, and shared
        by as many `gangs` as its model may have."""
        if task.ended or task.eta_s is not None:
            return task.eta_s
        per_work = self.seconds_per_work(task.model)
        if per_work is None:
            return None
        alone_s = per_work * _work(task)
        if task.state is State.IN_PROGRESS:
            return max(0.0, alone_s - (now - (task.started_at or now)))
        return None if position is None else alone_s * (1 + position / max(1, gangs))
