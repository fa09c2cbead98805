"""Whatever computes has no credential of Redis or of the object store: not in its environment, its arguments, its files or
its memory."""

import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until
from tests.service import Service

MODEL = "wan-tiny-t2v"
S3_SECRET = "s3-secret-of-the-service-0123456789"


def memory(process: psutil.Process) -> Iterator[bytes]:
    """What the process can write to: heaps, stacks and its own copies of data."""
    with Path(f"/proc/{process.pid}/mem").open("rb", 0) as mem:
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if found:
                begin, end = (int(one, 16) for one in found.groups())
                try:
                    mem.seek(begin)
                    yield mem.read(end - begin)
                except (OSError, ValueError, OverflowError):
                    continue  # not backed by memory, or gone


def knows(process: psutil.Process, secret: bytes) -> str:
    """Where the process has the secret; empty: nowhere."""
    proc = Path(f"/proc/{process.pid}")
    for place in ("environ", "cmdline"):
        if secret in (proc / place).read_bytes():
            return place
    return "memory" if any(secret in piece for piece in memory(process)) else ""


@pytest.mark.timeout(240)
async def test_workers_and_ranks_know_no_credential_of_redis_or_s3(tmp_path: Path) -> None:
    models = {MODEL: {"weights": f"builtin:{MODEL}", "family": MODEL, "ulysses": 2, "min_replicas": 1}}
    environ = {"AWS_SECRET_ACCESS_KEY": S3_SECRET, "AWS_ACCESS_KEY_ID": "service"}
    service = Service(tmp_path / "state", {"models": models}, environ=environ)
    await service.start()
    try:
        await wait_until(lambda: len(service.ranks(MODEL)) == 2, "the ranks", 120)
        redis = (service.state_dir / "redis" / "password").read_bytes().strip()
        secrets = (redis, S3_SECRET.encode(), service.api_key.partition(".")[2].encode())
        assert knows(service.parts("gateway")[0], redis), "or the search finds nothing"
        computing = [*service.parts("worker"), *service.parts("gang"), *service.ranks(MODEL)]
        assert len(computing) == 4
        for process in computing:
            assert [knows(process, secret) for secret in secrets] == ["", "", ""], process.cmdline()
        files = [path for path in (service.state_dir / "worker").rglob("*") if path.is_file()]
        assert files and not [p for p in files if any(one in p.read_bytes() for one in secrets)]
    finally:
        await service.stop()
