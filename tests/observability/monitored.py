"""`turnout up` with a real Prometheus beside it, which has the rules and the configuration of deploy/observability."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.conftest import wait_until
from tests.pace import patient
from tests.ports import free_port
from tests.service import Service

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
GIB = 2**30
CHAT = {
    "engine": "llamacpp",
    "weights": "builtin:smollm2",
    "needs": {"gpus": 1, "gpu_memory_bytes": GIB, "memory_bytes": 512 * 2**20},
    "concurrency": 4,
}
VIDEO = {
    "weights": "builtin:wan-tiny-t2v",
    "family": "wan-tiny-t2v",
    "ulysses": 2,
    "needs": {"memory_bytes": GIB},
}
MODELS = {"wan-tiny-t2v": VIDEO, "smollm2": CHAT}


class Prometheus:
    def __init__(self, folder: Path, target: str, scrape_s: float) -> None:
        self._folder = folder
        self._target = target
        self._scrape_s = scrape_s
        self._process: asyncio.subprocess.Process | None = None
        self._client = httpx.AsyncClient(timeout=10)
        self.url = ""

    async def start(self) -> None:
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        every = f"{round(self._scrape_s * 1000)}ms"
        config["global"] |= {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
        config["rule_files"] = [str(FOLDER / "rules.yaml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [self._target]}]
        self._folder.mkdir()
        path = self._folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        with (self._folder / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address={address}",
                stdout=log,
                stderr=log,
            )
        await wait_until(self._ready, "Prometheus to be ready", 60)

    async def _ready(self) -> bool:
        try:
            return (await self._client.get(f"{self.url}/-/ready")).status_code == 200
        except httpx.HTTPError:
            return False

    async def stop(self) -> None:
        await self._client.aclose()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait_for(self._process.wait(), patient(30))

    async def get(self, path: str, **params: str) -> Any:
        answer = (await self._client.get(f"{self.url}/api/v1/{path}", params=params)).json()
        assert answer["status"] == "success", (path, params, answer)
        return answer["data"]

    async def query(self, expr: str) -> list[float]:
        """The values that there are now, but for NaN."""
        data = await self.get("query", query=expr)
        found = [data["result"]] if data["resultType"] == "scalar" else [r["value"] for r in data["result"]]
        return [value for _, text in found if (value := float(text)) == value]

    async def firing(self) -> set[str]:
        alerts = (await self.get("alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def set_gpus(folder: Path, *gpus: Mapping[str, int]) -> None:
    fresh = folder / "gpus.new"
    fresh.write_text(json.dumps([dict(gpu) for gpu in gpus]))
    fresh.replace(folder / "gpus.json")


@asynccontextmanager
async def monitored(
    folder: Path, scrape_s: float = 1.0, state: Path | None = None, **settings: Any
) -> AsyncIterator[tuple[Service, Prometheus]]:
    """Two GPUs stand in; `set_gpus(folder, …)` changes their figures."""
    folder.mkdir(parents=True, exist_ok=True)
    set_gpus(folder, {"total": 8 * GIB, "free": 8 * GIB}, {"total": 8 * GIB, "free": 8 * GIB})
    path = os.pathsep.join((str(Path(__file__).parent / "nvml"), os.environ.get("PYTHONPATH", "")))
    environ = {"PYTHONPATH": path, "STAND_IN_GPUS": str(folder / "gpus.json")}
    settings = {"models": MODELS, "lease_s": 3, **settings}
    service = Service(state or folder / "state", settings, environ=environ)
    await service.start()
    prometheus = Prometheus(folder / "prometheus", service.url.removeprefix("http://"), scrape_s)
    try:
        await prometheus.start()
        yield service, prometheus
    finally:
        await prometheus.stop()
        if service.running:
            await service.stop()


def client(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=60)


async def render(http: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await http.post("/v1/videos", json={"prompt": "a red ball", "model": "wan-tiny-t2v", **fields})


async def ask(http: httpx.AsyncClient, model: str = "smollm2", **fields: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, **fields}
    return await http.post("/v1/chat/completions", json=body)
