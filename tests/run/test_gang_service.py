"""How a gang's process comes by its access: a real gateway, and what a user or a pod starts."""

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest
from tests.conftest import Stores, make_task
from tests.gangs import open_door
from tests.pace import patient

from turnout.errors import Misconfigured, Stale
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.model_rules import EngineKind, Model, VideoPart
from turnout.run.gang_service import join_gang, open_api
from turnout.run.joining import Joining
from turnout.tasks.task_rules import GangId, Limits, State, TenantId
from turnout.tenants.key_rules import Role, mint

LIMITS = Limits(max_waiting=1000, max_running=1000, submits_per_minute=10**6)
MODEL = "wan-tiny-t2v"


async def test_a_process_that_takes_its_gang_up_again_begins_a_new_attempt_and_the_old_one_can_write_nothing(
    stores: Stores,
) -> None:
    async with open_door(stores) as door:
        submitted = await stores.tasks.submit(make_task(), LIMITS)
        joining = Joining(door.base, door.token("pod-0"))
        name, access = await join_gang(joining, None, MODEL, "pod-0")
        assert name == "pod-0"
        async with open_api(access) as first:
            claimed = await first.claim(loading=False, wait_s=0.0)
            assert claimed is not None and claimed.attempt == 1
            _, access = await join_gang(joining, None, MODEL, "pod-0")
            assert (await stores.tasks.get(submitted.id)).state is State.QUEUED
            async with open_api(access) as second:
                again = await second.claim(loading=False, wait_s=0.0)
                assert again is not None and (again.id, again.attempt) == (claimed.id, 2)
            with pytest.raises(Stale):
                await first.attempt(claimed).renew()


async def test_a_token_that_is_not_of_this_service_is_refused_at_once(stores: Stores) -> None:
    async with open_door(stores) as door:
        with pytest.raises(Misconfigured, match="takes no gang"):
            await join_gang(Joining(door.base, "tg-e30.00"), None, MODEL, "pod-0")


async def test_open_gang_leaves_a_private_file_with_a_token_for_one_gang_and_not_the_key(
    stores: Stores, tmp_path: Path
) -> None:
    key, token = mint("ab12", "s" * 32, TenantId("default"), Role.WORKER, "test", 0.0)
    await stores.tenants.keys.add(key)
    part = VideoPart(FAMILIES[MODEL])
    await stores.fleet.models.put(Model(MODEL, EngineKind.VIDEO, f"builtin:{MODEL}", video=part))
    (tmp_path / "key").write_text(f"{token}\n")
    made = tmp_path / "gang" / "token"
    async with open_door(stores) as door:
        words = ("open-gang", "--model", MODEL, "--gang", "pod-0", "--join", door.base)
        files = ("--token-file", str(tmp_path / "key"), "--write-to", str(made))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "turnout", *words, *files, "--state-dir", str(tmp_path / "state")),
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        )
        async with asyncio.timeout(patient(60)):
            _, said = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
        right = door.gateway.inside.videos.gangs.tokens.read(made.read_text())
        assert right is not None and right.gang.startswith("pod-0-")
        assert (right.holder, right.model) == (key.id, MODEL)
        await join_gang(Joining(door.base, made.read_text()), None, MODEL, GangId("pod-0"))
        assert token not in said.decode() and made.read_text() not in said.decode()
