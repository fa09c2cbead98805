"""Scripts of the older interface run as they are, with another address and a key; and open mode, where no key is needed."""

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx
import pytest
from tests.pace import patient
from tests.ports import free_port
from tests.service import running_service
from tests.workers import worker_key

SCRIPT = Path(__file__).with_name("older_interface.sh")


@pytest.mark.timeout(300)
async def test_the_calls_of_the_older_interface_work_word_for_word(tmp_path: Path) -> None:
    async with running_service(tmp_path, no_auth=True) as service:
        environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MANAGER_URL": service.url,
            "KEY": service.api_key,
            "TURNOUT_JOIN_TOKEN": await worker_key(service),
            "WORKER_PORT": str(free_port()),
            "WORKER_STATE": str(tmp_path / "worker"),
        }
        script = await asyncio.create_subprocess_exec(
            "bash", str(SCRIPT), env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await script.communicate()
        assert script.returncode == 0, (out, err)
        answers = [json.loads(line) for line in out.decode().splitlines() if line]
        health, workers, registered, shown, models, chat, started, video = answers
        assert health["status"] == "ok"
        assert {"gpu-box-1"} <= {worker["name"] for worker in workers["data"]}
        assert (registered["engine"], "vLLM" in registered["notice"]) == ("vllm", True)
        assert (shown["max_model_len"], shown["gpu_memory_utilization"]) == (4096, 0.5)
        assert {"qwen", "smollm2", "wan-tiny-t2v"} <= {model["id"] for model in models["data"]}
        assert chat["choices"][0]["message"]["content"]
        assert started == {"status": "task_started", "task_id": "go-task-0001"}
        assert (video["status"], video["task_id"], video["steps"]) == ("completed", "go-task-0001", 2)
        assert (tmp_path / "worker.mp4").read_bytes()[4:8] == b"ftyp"
        async with httpx.AsyncClient(base_url=service.url, timeout=patient(60)) as anyone:
            assert (await anyone.get("/v1/videos/go-task-0001")).json()["status"] == "completed"
            assert (await anyone.get("/v1/videos", headers={"host": "evil.example"})).status_code == 403
            body = {"model": "smollm2", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1}
            for host, status in (("localhost", 200), ("evil.example", 403)):
                headers = {"host": host, "authorization": "Bearer sk-any"}
                asked = await anyone.post("/v1/chat/completions", json=body, headers=headers)
                assert asked.status_code == status, asked.text
