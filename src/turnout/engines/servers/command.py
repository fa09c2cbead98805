"""How a user's own server is started: any command line whose program speaks OpenAI's dialect. Pure.

No shell is involved: each word of the template is one argument, with `{port}`, `{host}`, `{weights}` and `{name}`
filled in.
"""

import re

from turnout.engines.servers.launch_plan import DIALECT, LOOPBACK, Launch
from turnout.errors import InvalidRequest
from turnout.fleet.model_rules import Model

PATHS = DIALECT | {"/v1/responses", "/v1/messages", "/v1/rerank", "/v1/score", "/v1/audio/transcriptions"}

_BLANK = re.compile(r"\{(\w+)\}")


def check_command(command: tuple[str, ...]) -> None:
    if not command:
        raise InvalidRequest("a command engine needs a command", param="command")
    if not any("{port}" in word for word in command[1:]):
        raise InvalidRequest("the command must say {port}, where its server listens", param="command")


def plan(model: Model, port: int) -> Launch:
    blanks = {"port": str(port), "host": LOOPBACK, "weights": model.weights, "name": model.name}
    # One pass: a value that contains `{port}` is not filled in again. Braces around other words stay.
    words = [_BLANK.sub(lambda m: blanks.get(m[1], m[0]), word) for word in model.server.command]
    return Launch((*words, *model.server.arguments), {}, port)
