"""Scripts have one typed call site each, and the names of keys are in one place."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from tests.conftest import Stores

import turnout
from turnout.store import scripts
from turnout.store.key_names import KeyNames
from turnout.store.scripts import Script
from turnout.tasks import task_scripts
from turnout.tasks.task_rules import GangId

PACKAGE = Path(turnout.__file__).parent
SOURCES = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
LUA = {str(path.relative_to(PACKAGE).with_suffix("")): path.read_text() for path in PACKAGE.rglob("*.lua")}
PARTS = {
    "store/names",
    "people/persons",
    "people/staying",
    "tasks/submission_limits",
    "tasks/turns",
    "tenants/allowance",
    "tenants/usage",
}
SCRIPTS = sorted(LUA.keys() - PARTS)
KEYS = re.findall(r"^local function (\w+)_key\(([^)]*)\)", LUA["store/names"], re.MULTILINE)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_has_one_typed_call_site_in_its_room(script: str) -> None:
    [site] = [path for path, source in SOURCES.items() if f'Script("{script}"' in source]
    room, name = script.split("/")
    assert site.parent.name == room
    assert len(re.findall(rf"\b_{name}\.(?:run|promise)\(", site.read_text())) == 1
    call = getattr(import_module(f"turnout.{room}.{site.stem}"), name)
    assert inspect.iscoroutinefunction(call)
    link, *arguments = inspect.signature(call).parameters.values()
    assert link.name == "link"
    assert all(argument.kind is argument.KEYWORD_ONLY for argument in arguments)
    hints = get_type_hints(call)
    assert hints.keys() == {"link", "return", *(argument.name for argument in arguments)}
    assert Any not in hints.values()


def test_scripts_are_run_only_by_their_call_sites() -> None:
    users = {
        path
        for path, source in SOURCES.items()
        if re.search(r"(?i)\bevalsha|register_script|\"EVAL\"", source)
    }
    assert users == {Path(inspect.getfile(scripts))}


async def test_a_script_is_sent_again_when_the_server_forgot_it(stores: Stores) -> None:
    for _ in range(2):
        await stores.link.client.script_flush()
        assert await task_scripts.claim(stores.link, model="m", gang=GangId("g"), max_running=1) is None


async def test_a_script_is_one_round_trip(stores: Stores) -> None:
    await task_scripts.forget_queue(stores.link, model="m")
    await stores.link.client.config_resetstat()
    await task_scripts.forget_queue(stores.link, model="m")
    sent = await stores.link.client.info("commandstats")
    assert sent["cmdstat_evalsha"]["calls"] == 1 and "cmdstat_eval" not in sent


async def test_a_script_takes_no_argument_that_it_does_not_name(stores: Stores) -> None:
    with pytest.raises(TypeError, match="colour"):
        await Script("tasks/forget_queue", "tasks/turns").run(stores.link, model="m", colour="red")
    with pytest.raises(KeyError, match="model"):
        await Script("tasks/forget_queue", "tasks/turns").run(stores.link)


@pytest.mark.parametrize(("name", "parameters"), KEYS)
async def test_scripts_and_python_name_keys_alike(stores: Stores, name: str, parameters: str) -> None:
    values = [f"x{n}" for n, parameter in enumerate(parameters.split(",")) if parameter.strip()]
    called = ", ".join(f"'{value}'" for value in values)
    in_lua = await stores.link.client.eval(f"{LUA['store/names']} return {name}_key({called})", 1, "prefix")
    assert in_lua.decode() == getattr(KeyNames("prefix"), name)(*values)


def test_no_other_module_builds_a_key() -> None:
    by_hand = re.compile(r"\.prefix\b|prefix\}|f\"[^\"]*\}:|\":\"\.join")
    for path, source in SOURCES.items():
        speaks = "self._link" in source
        if speaks and path.name not in ("key_names.py", "scripts.py"):
            assert not by_hand.search(source), path
    for name, source in LUA.items():
        if name != "store/names":
            assert not re.search(r"\bP\b|KEYS", source), name


def test_key_names_never_meet() -> None:
    names = KeyNames("p")
    made = [
        getattr(names, name)(*["x"] * (len(inspect.signature(member).parameters) - 1))
        for name, member in inspect.getmembers(KeyNames, inspect.isfunction)
        if not name.startswith("_")
    ]
    assert len(set(made)) == len(made)
