"""The whole service on a GPU: GPUs found, clips rendered over HTTP, a rank killed, memory given back.

CI has no GPU. Run by hand on a machine that has one (`./dev test-gpu`), or with `--device cpu` to try the script itself:

    python -m tests.e2e.gpu_service FOLDER [--device cpu] [--layers 40]

Estimates, cold starts and disk reads have benchmarks of their own, on weights that `--weights-only` makes:

    python -m tests.e2e.gpu_service FOLDER --weights-only
    python -m benchmarks.warm_start --device cuda --weights FOLDER/large --family wan2.2-t2v-a14b --rounds 2
    python -m benchmarks.estimates --device cuda --weights FOLDER/large --family wan2.2-t2v-a14b --rounds 2
    python -m benchmarks.disk_reads --device cuda --folder FOLDER --gb 16

FOLDER gets the weights (random ones of A14B's shape: 40 GB with 40 layers, both experts from the same files), the
service's state, and `gpu_service.json` with what was seen. Exits with 1 at the first thing that does not hold.
"""

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import httpx_sse
from tests.conftest import wait_until
from tests.service import Service, running_service
from tests.workers import worker_key

from turnout.engines.wan.builtin import find_weights
from turnout.worker.gpus import find_gpus, pynvml

GIB = 2**30
IDLE_S = 5.0
TASK_S = 150.0
TINY = {"model": "tiny", "prompt": "a red square moving to the right", "seed": 7}
LARGE = {"model": "large", "prompt": "a red fox in the snow", "seed": 7}
# What a process that has left may still be counted for: contexts of others, the driver's own pages.
LEFT_BYTES = 64 * 2**20


@dataclass(slots=True)
class Record:
    """What was seen, in the order it was seen."""

    seen: dict[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, what: str, value: Any) -> None:
        self.seen[what] = value
        print(f"{what}: {value}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--size", default="832x480")
    parser.add_argument("--frames", type=int, default=81)
    parser.add_argument(
        "--weights-only", action="store_true", help="make FOLDER/large, for the benchmarks, and leave"
    )
    said = parser.parse_args()
    said.folder.mkdir(parents=True, exist_ok=True)
    record = Record()
    try:
        weights = _weights(said.folder / "large", said.layers, said.device, record)
        if said.weights_only:
            return
        asyncio.run(_serve(said, weights, record))
        if said.device == "cuda":
            _on_a_small_gpu(said, weights, record)
    finally:
        (said.folder / "gpu_service.json").write_text(json.dumps(record.seen, indent=1) + "\n")


async def _serve(said: argparse.Namespace, weights: Path, record: Record) -> None:
    on_gpu = said.device == "cuda"
    record("versions", _versions())
    record("free before, GiB", _free_gib())
    rules = {"sizes": [], "max_pixels": 10**8, "max_frames": 1001}
    gang = {"engine": "wan", "device": said.device, "idle_s": IDLE_S}
    small = {"gpu_memory_bytes": 4 * GIB} if on_gpu else {}
    adapters = {
        name: str(write_adapter(said.folder / f"{name}.safetensors", folder))
        for name, folder in (("tiny", find_weights("builtin:wan-tiny-t2v", said.folder)), ("large", weights))
    }
    # A GPU takes one rank; a CPU is as good for two.
    ranks = {} if on_gpu else {"ulysses": 2}
    settings = {
        "checkpoint_steps": 2,
        "min_resident_s": 1.0,
        "models": {
            "tiny": {
                **gang,
                **ranks,
                "weights": "builtin:wan-tiny-t2v",
                "family": "wan-tiny-t2v",
                "needs": small,
                "loras": {"style": adapters["tiny"]},
            },
            "large": {
                **gang,
                "weights": str(weights),
                "family": "wan2.2-t2v-a14b",
                "rules": rules,
                "loras": {"style": adapters["large"]},
            },
            "fast": {
                **gang,
                "weights": str(weights),
                "family": "wan2.2-t2v-a14b",
                "rules": {**rules, "guided_share": 0.75},
                "fp8": True,
            },
            "outer": {
                **gang,
                "weights": "builtin:wan-tiny-t2v",
                "family": "wan-tiny-t2v",
                "runner": "external",
            },
        },
    }
    shutil.rmtree(said.folder / "service", ignore_errors=True)
    (said.folder / "service").mkdir()
    async with running_service(said.folder / "service", **settings) as service:
        _doctor(service, record)
        async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=60) as client:
            worker = (await client.get("/workers")).json()["data"][0]
            record("the worker's GPUs", worker["machine"]["gpus"])
            await _tiny(client, record)
            await _large(service, client, said, record)
            if on_gpu:
                await _too_large(client, record)
            # Takes the place of the other, which is idle.
            clip = {**LARGE, "model": "fast", "size": said.size, "frames": said.frames, "steps": said.steps}
            await _render(client, clip, record, "large in fp8, guided for 75 %")
            await _idle(service, record)
            await _gang_of_others(service, client, said.device, record)
    record("free after the service, GiB", _free_gib())


async def _tiny(client: httpx.AsyncClient, record: Record) -> None:
    first = await _render(client, TINY, record, "tiny, cold")
    second = await _render(client, TINY, record, "tiny, warm")
    assert first == second, "the same seed gave other bytes"
    await _with_adapter(client, TINY, first, record, "tiny")


async def _with_adapter(
    client: httpx.AsyncClient, clip: dict[str, Any], plain: str, record: Record, name: str
) -> None:
    """An adapter that is named makes another clip, and nothing is left of it afterwards."""
    adapted = [
        await _render(client, {**clip, "loras": [use]}, record, f"{name} with {use}")
        for use in ("style", "style:0.5", "style")
    ]
    assert adapted[0] == adapted[2] and len({plain, *adapted}) == 3, (plain, adapted)
    after = await _render(client, {**clip, "loras": []}, record, f"{name} without it")
    assert after == plain, "something was left of the adapter"
    record(f"{name}: adapters come and go", True)


async def _large(
    service: Service, client: httpx.AsyncClient, said: argparse.Namespace, record: Record
) -> None:
    clip = {**LARGE, "size": said.size, "frames": said.frames, "steps": said.steps}
    killed: list[int] = []
    resumed: list[int] = []
    loads: list[int] = []
    video = (await client.post("/v1/videos", json=clip)).raise_for_status().json()
    began = time.monotonic()
    checkpoint = 0
    async for event in _events(client, video["id"]):
        match event["type"]:
            case "video.progress" if event.get("load_bytes") and not killed:
                loads.append(event["loaded_bytes"])
                record("loading, GB of GB", [event["loaded_bytes"] / 1e9, event["load_bytes"] / 1e9])
            case "video.progress" if killed and not resumed and event["stage"] == "denoising":
                resumed.append(event["step"])
            case "video.checkpoint":
                checkpoint = event["step"]
                if not killed:
                    (rank,) = service.ranks("large")
                    killed.append(rank.pid)
                    os.kill(rank.pid, signal.SIGKILL)
            case _:
                pass
    record("large, killed and resumed, s", round(time.monotonic() - began, 1))
    assert loads == sorted(loads), loads
    ended = (await client.get(f"/v1/videos/{video['id']}")).json()
    assert ended["status"] == "completed", ended
    record("attempts, resumed from step, last checkpoint", [ended["attempt"], resumed, checkpoint])
    assert ended["attempt"] == 2 and resumed and resumed[0] >= 2, (ended, resumed)
    broken = await _content(client, video["id"])
    whole = await _render(client, clip, record, "large, undisturbed")
    record("the resumed clip has the same bytes", broken == whole)
    assert broken == whole
    record("free with the large model, GiB", _free_gib())
    brief = {**clip, "frames": 5, "steps": 2}
    plain = await _render(client, brief, record, "large, brief")
    await _with_adapter(client, brief, plain, record, "large")
    guided = {**clip, "guided_share": 0.5}
    other = await _render(client, guided, record, "large, half guided")
    assert other != whole


async def _too_large(client: httpx.AsyncClient, record: Record) -> None:
    """A clip that cannot fit is refused with what would, and the same gang renders the next one."""
    huge = {**LARGE, "size": "3840x2160", "frames": 241, "steps": 1}
    video = (await client.post("/v1/videos", json=huge)).raise_for_status().json()
    async for _ in _events(client, video["id"]):
        pass
    ended = (await client.get(f"/v1/videos/{video['id']}")).json()
    record("too large", ended["error"])
    assert ended["status"] == "failed" and "would fit" in ended["error"]["message"], ended
    await _render(client, {**LARGE, "size": "832x480", "frames": 5, "steps": 1}, record, "after it")


def _on_a_small_gpu(said: argparse.Namespace, weights: Path, record: Record) -> None:
    """The same engine with 48 GiB, where only one expert fits, and with all of the GPU: the same bits."""
    import torch

    from turnout.engines.base import EngineSetup, Parallel
    from turnout.engines.wan import load, wan_model
    from turnout.tasks.video_rules import VideoSpec

    width, height = (int(side) for side in said.size.split("x"))
    spec = VideoSpec("a red fox", "blurry", width, height, said.frames, 16, 4, (3.0, 4.0), 5.0, 7)
    limit = 48 * GIB
    plain = wan_model.free_bytes
    clips: list[torch.Tensor] = []
    for small in (True, False):
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit / total if small else 1.0)
        capped = lambda _: limit - torch.cuda.memory_allocated()
        load.free_bytes = wan_model.free_bytes = capped if small else plain
        name = "48 GiB" if small else "all of the GPU"
        began = time.monotonic()
        engine = load.make_engine(EngineSetup(weights, Parallel(), "cuda", "bfloat16"))
        record(f"with {name}: loading, s", round(time.monotonic() - began, 1))
        rendering = engine.begin(spec, None)
        took: list[float] = []
        while rendering.step < rendering.of:
            began = time.monotonic()
            rendering.advance()
            took.append(round(time.monotonic() - began, 2))
        frames = rendering.decode()
        assert frames is not None and len(list(frames)) == said.frames
        record(f"with {name}: steps, s", took)
        record(f"with {name}: most memory, GiB", round(torch.cuda.max_memory_allocated() / GIB, 1))
        record(f"with {name}: on the host, GiB", round(engine.model.memory.away_bytes / GIB, 1))
        assert (engine.model.memory.away_bytes > 0) == small
        clips.append(rendering.latents.cpu())
        del engine, rendering, frames
        torch.cuda.empty_cache()
    assert clips[0].equal(clips[1]), "the small GPU made another clip"
    record("a small GPU makes the same bits", True)


async def _idle(service: Service, record: Record) -> None:
    began = time.monotonic()
    await wait_until(lambda: not service.parts("gang"), "all gangs to leave when idle", 60)
    record("gangs left after, s", round(time.monotonic() - began, 1))
    first = record.seen["free before, GiB"]
    await wait_until(
        lambda: all(now >= then - LEFT_BYTES / GIB for now, then in zip(_free_gib(), first, strict=True)),
        "the GPU's memory to be free",
        20,
    )
    record("free after they left, GiB", _free_gib())


async def _gang_of_others(service: Service, client: httpx.AsyncClient, device: str, record: Record) -> None:
    """Somebody else starts the rank; its GPU is counted by its kind."""
    settings = service.state_dir / "worker" / "settings.json"
    words = ("rank", "--config", str(settings), "--model", "outer", "--join", service.url)
    key = {"TURNOUT_JOIN_TOKEN": await worker_key(service)}
    rank = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnout", *words, env={**os.environ, **key}
    )
    try:
        await _render(client, {**TINY, "model": "outer"}, record, "a gang that others started")
        kind = f'kind="{find_gpus(pynvml()).gpus[0].name}"' if device == "cuda" else 'kind="cpu"'

        async def counted() -> bool:
            text = (await client.get("/metrics")).text
            lines = [line for line in text.splitlines() if line.startswith("turnout_gpu_seconds_total{")]
            return any('model="outer"' in line and kind in line for line in lines)

        await wait_until(counted, f"its time to be counted as {kind}", 20)
        record("it is counted as", kind)
    finally:
        rank.terminate()
        await rank.wait()


async def _render(client: httpx.AsyncClient, clip: dict[str, Any], record: Record, name: str) -> str:
    """Digest of the clip."""
    began = time.monotonic()
    video = (await client.post("/v1/videos", json=clip)).raise_for_status().json()
    steps: list[float] = []
    async for event in _events(client, video["id"]):
        if event["type"] == "video.progress" and event["stage"] == "denoising":
            steps.append(event["created_at"])
    took_s = time.monotonic() - began
    ended = (await client.get(f"/v1/videos/{video['id']}")).json()
    assert ended["status"] == "completed", ended
    a_step = round((steps[-1] - steps[0]) / max(1, len(steps) - 1), 3)
    record(
        name,
        {"text to mp4, s": round(took_s, 2), "a step, s": a_step, "steps": len(steps) - 1}
        | {"lossy": ended["lossy"]},
    )
    return await _content(client, video["id"])


async def _content(client: httpx.AsyncClient, video: str) -> str:
    data = (await client.get(f"/v1/videos/{video}/content")).raise_for_status().content
    assert data[4:8] == b"ftyp", data[:16]
    return hashlib.sha256(data).hexdigest()


async def _events(client: httpx.AsyncClient, video: str) -> AsyncIterator[dict[str, Any]]:
    """All of them, to the end; a task that takes longer than any here should is a failure."""
    async with (
        asyncio.timeout(TASK_S),
        httpx_sse.aconnect_sse(client, "GET", f"/v1/videos/{video}/events") as source,
    ):
        async for event in source.aiter_sse():
            if event.data:
                yield json.loads(event.data)


def write_adapter(path: Path, weights: Path) -> Path:
    """A random adapter of rank 16 for the attention of every block, with diffusers' names."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((weights / "transformer" / "config.json").read_text())
    width = config["num_attention_heads"] * config["attention_head_dim"]
    generator = torch.Generator().manual_seed(1)
    tensors: dict[str, torch.Tensor] = {}
    for block in range(config["num_layers"]):
        for layer in ("to_q", "to_k", "to_v", "to_out.0"):
            name = f"transformer.blocks.{block}.attn1.{layer}"
            down, up = (torch.randn(shape, generator=generator) for shape in ((16, width), (width, 16)))
            tensors[f"{name}.lora_A.weight"], tensors[f"{name}.lora_B.weight"] = down * width**-0.5, up * 0.1
    save_file(tensors, path)
    return path


def _doctor(service: Service, record: Record) -> None:
    command = [sys.executable, "-m", "turnout", "doctor", "--json", "--config", str(service.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = json.loads(done.stdout)
    record("doctor", {f"{each['what']}": [each["ok"], each["detail"]] for each in found})
    wrong = [each for each in found if each["ok"] is False]
    assert not wrong, wrong


def _free_gib() -> list[float]:
    return [round(gpu.free_bytes / GIB, 2) for gpu in find_gpus(pynvml()).gpus]


def _versions() -> dict[str, str]:
    import diffusers
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": name, "torch": torch.__version__, "diffusers": diffusers.__version__}


def _weights(folder: Path, layers: int, device: str, record: Record) -> Path:
    """Random weights of A14B's shape, in diffusers' format; a tiny model on a CPU."""
    from turnout.engines.wan.tiny import make_tiny

    shutil.rmtree(folder, ignore_errors=True)
    make_tiny("t2v", folder)
    if device != "cuda":
        return folder
    began = time.monotonic()
    size = _write_a14b(folder, layers)
    record(
        "weights made",
        {"GB": round(size / 1e9, 1), "layers": layers, "s": round(time.monotonic() - began, 1)},
    )
    return folder


def _write_a14b(folder: Path, layers: int) -> int:
    import torch

    from turnout.engines.wan.convert_classes import UMT5Config, UMT5EncoderModel, WanTransformer3DModel, hush
    from turnout.engines.wan.library_classes import AutoencoderKLWan

    hush()
    vocabulary = json.loads((folder / "text_encoder/config.json").read_text())["vocab_size"]
    with torch.device("meta"):
        parts = {
            # The published one has 256,384 words; our tokenizer has fewer.
            "text_encoder": UMT5EncoderModel(
                UMT5Config(
                    vocab_size=max(vocabulary, 256_384),
                    d_model=4096,
                    d_kv=64,
                    d_ff=10_240,
                    num_layers=24,
                    num_heads=64,
                    dense_act_fn="gelu_new",
                    feed_forward_proj="gated-gelu",
                    pad_token_id=0,
                    eos_token_id=1,
                )
            ),
            "transformer": WanTransformer3DModel(num_layers=layers, text_dim=4096, added_kv_proj_dim=None),
        }
    written = 0
    for name, part in parts.items():
        shutil.rmtree(folder / name)
        (folder / name).mkdir()
        cast("Any", part).config.save_pretrained(folder / name) if name == "text_encoder" else cast(
            "Any", part
        ).save_config(folder / name)
        stem = "model" if name == "text_encoder" else "diffusion_pytorch_model"
        written += _write_random(cast("Any", part), folder / name, stem)
    shutil.rmtree(folder / "transformer_2")
    (folder / "transformer_2").symlink_to("transformer", target_is_directory=True)
    shutil.rmtree(folder / "vae")
    AutoencoderKLWan().to(torch.bfloat16).save_pretrained(folder / "vae")
    return written


def _write_random(module: Any, folder: Path, stem: str, shards: int = 12) -> int:
    """bf16 numbers of a size that keeps activations near 1: made on the GPU, written by several threads."""
    import torch
    from safetensors.torch import save_file

    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    parts = [list(shapes)[n::shards] for n in range(shards)]

    def write(n: int) -> int:
        held: dict[str, torch.Tensor] = {}
        for name in parts[n]:
            shape = shapes[name]
            scale = 0.7 * shape[-1] ** -0.5 if len(shape) > 1 else 0.02
            made = torch.randn(shape, device="cuda", dtype=torch.bfloat16) * scale
            if len(shape) == 1 and name.endswith("weight"):
                made += 1  # norms
            held[name] = made.cpu()
        save_file(held, folder / f"{stem}-{n:05}.safetensors")
        return sum(tensor.nbytes for tensor in held.values())

    with ThreadPoolExecutor(4) as pool:
        size = sum(pool.map(write, range(shards)))
    files = {name: f"{stem}-{n:05}.safetensors" for n in range(shards) for name in parts[n]}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    torch.cuda.empty_cache()
    return size


if __name__ == "__main__":
    main()
