"""Where a task's objects lie. Results, previews and checkpoints lie under the attempt that made them,
so that a zombie's upload is never what a user sees."""

from turnout.domain.tasks import TaskId


def of_task(task: TaskId) -> str:
    return f"tasks/{task}/"


def input_image(task: TaskId) -> str:
    return f"tasks/{task}/input.png"


def of_attempt(task: TaskId, attempt: int) -> str:
    return f"tasks/{task}/{attempt}/"


def preview(task: TaskId, attempt: int, step: int) -> str:
    return f"{of_attempt(task, attempt)}preview-{step}.webp"


def checkpoint(task: TaskId, attempt: int, step: int) -> str:
    return f"{of_attempt(task, attempt)}checkpoint-{step}.safetensors"
