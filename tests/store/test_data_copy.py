"""A cold copy of the data: copied, lost, restored, and the service goes on."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Stores
from tests.gateways import Gateway, gateway

from turnout.errors import Conflict, InvalidRequest
from turnout.store.data_copy import back_up, restore

__all__ = ["gateway"]


async def flush(stores: Stores) -> None:
    link = stores.link
    names = [name async for name in link.client.scan_iter(f"{link.keys.prefix}:*")]
    await link.client.delete(*names)


async def test_after_backup_flush_and_restore_the_service_goes_on(gateway: Gateway, tmp_path: Path) -> None:
    stores, copy = gateway.stores, tmp_path / "copy"
    await stores.data.prove_write()
    done, waiting = await gateway.submit(), await gateway.submit()
    await gateway.gang.finish(await gateway.gang.claim())
    claimed = await gateway.submit()
    copied = await back_up(stores.link, copy)
    assert copied.keys > 10
    assert not copied.changed
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert list(tmp_path.glob("copy.*")) == []

    await flush(stores)
    gateway.inside.keys._kept.clear()
    assert (await gateway.http.get(f"/v1/videos/{done}")).json()["error"]["code"] == "data_lost"
    # What runs writes on by itself; that is no data.
    await stores.mutex.hold("manager", "m1", 60)
    assert await restore(stores.link, copy, over=False) == copied.keys

    assert (await gateway.http.get(f"/v1/videos/{done}")).json()["status"] == "completed", "with the old key"
    assert (await gateway.http.get(f"/v1/videos/{waiting}")).json()["status"] == "queued"
    kinds = [type(r.event).__name__ for r in await stores.events.history((await gateway.task(done)).id, "0")]
    assert kinds == ["Submitted", "Claimed", "Finished"]
    assert "wan-tiny-t2v" in await stores.fleet.models.all()
    rendered = [(await gateway.gang.finish(await gateway.gang.claim())).id for _ in range(2)]
    assert rendered == [waiting, claimed], "the queue goes on"
    await gateway.submit()


async def test_data_that_is_there_is_only_replaced_by_force(gateway: Gateway, tmp_path: Path) -> None:
    stores, copy = gateway.stores, tmp_path / "copy"
    old = await gateway.submit()
    await back_up(stores.link, copy)
    new = await gateway.submit()
    with pytest.raises(Conflict, match="--force"):
        await restore(stores.link, copy, over=False)
    assert (await gateway.http.get(f"/v1/videos/{new}")).status_code == 200
    await restore(stores.link, copy, over=True)
    assert (await gateway.http.get(f"/v1/videos/{new}")).status_code == 404
    assert (await gateway.http.get(f"/v1/videos/{old}")).status_code == 200


async def test_a_file_that_is_not_whole_changes_nothing(gateway: Gateway, tmp_path: Path) -> None:
    stores, copy = gateway.stores, tmp_path / "copy"
    video = await gateway.submit()
    await back_up(stores.link, copy)
    lines = copy.read_text().splitlines(keepends=True)
    for broken in ("".join(lines[:-1]), "".join(lines[:3]) + lines[3][:20], "hello", "{}\n", ""):
        copy.write_text(broken)
        with pytest.raises(InvalidRequest):
            await restore(stores.link, copy, over=True)
    assert (await gateway.http.get(f"/v1/videos/{video}")).status_code == 200


async def test_the_commands_copy_and_restore(gateway: Gateway, valkey: str, tmp_path: Path) -> None:
    copy, stores = tmp_path / "copy", gateway.stores
    settings = tmp_path / "backup.yaml"
    settings.write_text(f"redis_url: {valkey}\nredis_prefix: {stores.link.keys.prefix}\n")
    video = await gateway.submit()

    def turnout(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "turnout", *arguments, "--config", str(settings)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert f"keys are in {copy}" in turnout("backup", str(copy)).stdout
    refused = turnout("restore", str(copy))
    assert refused.returncode != 0
    assert "--force" in refused.stderr
    await flush(stores)
    assert "keys restored" in turnout("restore", str(copy)).stdout
    assert (await gateway.http.get(f"/v1/videos/{video}")).status_code == 200
    assert turnout("backup", "/nonexistent/copy").returncode == 2
