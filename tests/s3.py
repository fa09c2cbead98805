"""A real S3 server for tests: SeaweedFS from PyPI. It enforces signatures and expiry."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pace import patient
from tests.ports import free_ports
from turnout.errors import Unavailable
from turnout.processes.child import Child
from turnout.store.object_store import open_blobs

ACCESS, SECRET = "turnout-test", "turnout-test-secret"


@contextlib.contextmanager
def running_s3(home: Path) -> Iterator[str]:
    """The endpoint of a server with one bucket (`vid`) and one identity, which is put into the environment."""
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
        "actions": actions,
    }
    home.mkdir(exist_ok=True)
    (home / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = ("master", "volume", "filer", "s3", "master.grpc", "volume.grpc", "filer.grpc", "s3.grpc")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    argv = [
        *(
            str(Path(sys.executable).with_name("weed")),
            "mini",
            f"-dir={home}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
        ),
        *(
            "-master.telemetry=false",
            "-webdav=false",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ),
        *(f"-s3.config={home / 's3.json'}", "-bucket=vid"),
        *(
            f"-{name.replace('.grpc', '.port.grpc') if 'grpc' in name else name + '.port'}={port}"
            for name, port in ports.items()
        ),
    ]
    with asyncio.Runner() as runner:
        child = runner.run(Child.start("weed", argv, log=home / "weed.log"))
        endpoint = f"http://127.0.0.1:{ports['s3']}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
            patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            patch.setenv("AWS_REGION", "us-east-1")
            runner.run(wait_for_s3(endpoint, child))
            yield endpoint
        runner.run(child.stop(3))


async def wait_for_s3(endpoint: str, child: Child) -> None:
    deadline = time.monotonic() + patient(60)
    while True:
        try:
            await open_blobs("s3://vid", endpoint).put("hello", b"x", "text/plain")
            return
        except Unavailable as err:
            if time.monotonic() > deadline or child.returncode is not None:
                raise AssertionError(f"no S3: {err}: {child.log.read_text()[-2000:]}") from err
            await asyncio.sleep(0.1)
