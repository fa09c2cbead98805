"""What Ray says of a rank that died, in a few words."""

import pytest
from ray.exceptions import OutOfMemoryError, RayActorError

from turnout.fleet.hosts.ray.ray_ranks import death_words

_KILLED = """The actor died unexpectedly before finishing this task.
\tclass_name: RankHost
The actor is dead because its worker process has died. Worker exit type: NODE_OUT_OF_MEMORY Worker exit detail: Task was
killed due to the node running low on memory."""

_SIGKILL = "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."


@pytest.mark.parametrize(
    ("err", "words"),
    [
        (RayActorError(error_msg=_KILLED), "its node ran low on memory"),
        (
            OutOfMemoryError("Task was killed due to the node running low on memory."),
            "its node ran low on memory",
        ),
        (RayActorError(error_msg=f"The actor died.\n{_SIGKILL}"), "The actor died."),
    ],
)
def test_why_a_rank_died_is_one_line_and_names_a_lack_of_memory(err: Exception, words: str) -> None:
    assert death_words(err) == words
