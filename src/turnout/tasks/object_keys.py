"""Where a task's objects lie. Results, previews and checkpoints lie under the attempt that made them, and its gang: should
Redis lose a claim, two gangs have the same attempt number. So no attempt can overwrite or delete what another one wrote."""

from turnout.tasks.task_rules import GangId, Task, TaskId


def of_task(task: TaskId) -> str:
    return f"tasks/{task}/"


def input_image(task: TaskId) -> str:
    return f"tasks/{task}/input.png"


def of_attempt(task: Task) -> str:
    return of_attempt_by(task.id, task.attempt, task.gang)


def of_attempt_by(task: TaskId, attempt: int, gang: GangId | None) -> str:
    return f"tasks/{task}/{attempt}-{gang}/"


def preview(task: Task, step: int) -> str:
    return f"{of_attempt(task)}preview-{step}.webp"


def checkpoint(task: Task, step: int) -> str:
    return f"{of_attempt(task)}checkpoint-{step}.safetensors"


def is_checkpoint(key: str) -> bool:
    return "/checkpoint-" in key


def told_of(task: Task) -> set[str]:
    """The objects that a task's record names."""
    result = task.result
    made = (result.video, result.thumbnail, result.spritesheet, result.picture) if result else ()
    return {key for key in (task.checkpoint, task.preview, *made) if key is not None}
