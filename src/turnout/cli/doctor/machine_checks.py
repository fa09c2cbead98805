"""What this machine has: Python, disk, GPUs, and the libraries that render.

Heavy libraries are imported in a child process with a time limit: a broken CUDA must not end the doctor."""

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from turnout.cli.doctor.finding import Finding
from turnout.cli.formatting import duration
from turnout.extras import RENDERS
from turnout.fleet.machine_rules import Gpu
from turnout.run.config import Config
from turnout.worker.gpus import GpuFinding

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 2**30
TORCH_S = 60.0
QUICK_S = 10.0
GIB = 2**30

_TORCH_PROBE = """
import json, torch
devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "devices": devices}))
"""
_GPU_PROBE = """
import json, os
from dataclasses import asdict
from turnout.worker.gpus import find_gpus, pynvml
print(json.dumps(asdict(find_gpus(pynvml(), visible=os.environ.get("CUDA_VISIBLE_DEVICES")))))
"""
_AV_PROBE = "import av, json; av.codec.Codec('libx264', 'w'); print(json.dumps({'version': av.__version__}))"


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= MIN_PYTHON
    return Finding("python", fine, version, "" if fine else "use Python 3.11 or later")


def check_state_dir(state_dir: Path) -> Finding:
    place = _nearest(state_dir)
    if not place.is_dir():
        return Finding("state dir", False, f"{place} is not a directory", "choose another with --state-dir")
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("state dir", False, f"{place} is not writable", "choose another with --state-dir")
    return Finding("state dir", True, str(state_dir) if state_dir.exists() else f"{state_dir} (will be made)")


def check_disk(state_dir: Path) -> Finding:
    free = shutil.disk_usage(_nearest(state_dir)).free
    fine = free >= MIN_FREE_BYTES
    return Finding(
        "disk", fine, f"{free / GIB:.1f} GiB free", "" if fine else "free some, or move --state-dir"
    )


def check_state_size(config: Config) -> Finding:
    """What lies in the state directory, by folder, and how much may."""
    sizes, whole = _sizes(config.state_dir)
    total, quota = sum(sizes.values()), config.telemetry.state_quota_bytes
    parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in sorted(sizes.items()) if size >= 2**20)
    detail = f"{'' if whole else 'at least '}{total / GIB:.2f} GiB" + (f" ({parts})" if parts else "")
    if quota is None:
        return Finding("state size", True, f"{detail}; no quota (state_quota_bytes)")
    fine = total <= quota
    todo = "" if fine else "delete tasks, shorten retention_s, or raise state_quota_bytes"
    return Finding("state size", fine, f"{detail} of {quota / GIB:.2f} GiB", todo)


def _sizes(state_dir: Path) -> tuple[dict[str, int], bool]:
    """Bytes by folder, and whether all were counted in time."""
    sizes: dict[str, int] = {}
    deadline = time.monotonic() + QUICK_S
    for folder, _, names in os.walk(state_dir):
        top = Path(folder).relative_to(state_dir).parts[:1]
        for name in names:
            with contextlib.suppress(OSError):
                size = os.lstat(os.path.join(folder, name)).st_blocks * 512
                sizes[top[0] if top else "files"] = sizes.get(top[0] if top else "files", 0) + size
        if time.monotonic() > deadline:
            return sizes, False
    return sizes, True


def find_gpus() -> GpuFinding:
    """What a worker would find here. In a child process: a driver that hangs must not hang the doctor."""
    answer, problem = finish_probe(start_probe(_GPU_PROBE), QUICK_S)
    if problem:
        return GpuFinding(reason=f"NVIDIA's driver {problem}", broken=True)
    gpus = tuple(Gpu(**gpu) for gpu in answer["gpus"])
    lowest = answer["capability"]
    capability = None if lowest is None else (lowest[0], lowest[1])
    return GpuFinding(gpus, answer["reason"], answer["broken"], capability)


def check_gpus(config: Config, found: GpuFinding) -> Finding:
    if found.gpus:
        gpus = [
            f"{gpu.name} ({gpu.free_bytes / GIB:.0f} of {gpu.total_bytes / GIB:.0f} GiB free)"
            for gpu in found.gpus
        ]
        return Finding("gpus", True, ", ".join(gpus))
    needed = [model.name for model in config.models if model.needs.gpus]
    if found.broken:
        return Finding("gpus", False, found.reason, "mend NVIDIA's driver; `nvidia-smi` must list the GPUs")
    if needed:
        return Finding("gpus", False, found.reason, f"needed by {', '.join(needed)}")
    return Finding("gpus", None, f"{found.reason}; models on the CPU work")


def check_pinned(name: str) -> Finding:
    """A library of which one version is known to work; the package's own metadata says which."""
    pin = next((m[1] for r in _requirements() if (m := re.match(rf"{name}==([\w.]+)", r))), None)
    version = installed_version(name)
    if version is None:
        return Finding(name, None, "not installed", f"to render here: {RENDERS}")
    if pin and version != pin:
        return Finding(name, False, f"{version}; Turnout is tested with {pin}", f"pip install {name}=={pin}")
    return Finding(name, True, version)


def check_av() -> Finding:
    if installed_version("av") is None:
        return Finding("av", None, "not installed", f"to render here: {RENDERS}")
    answer, problem = finish_probe(start_probe(_AV_PROBE), QUICK_S)
    if problem:
        return Finding("av", False, problem, "it must encode h264: pip install --force-reinstall av")
    return Finding("av", True, f"{answer.get('version')}, encodes h264")


def check_torch(probe: "subprocess.Popen[str] | None", config: Config) -> Finding:
    if probe is None:
        return Finding("torch", None, "not installed", f"to render here: {RENDERS}")
    if probe.poll() is None:
        print("  importing torch …", file=sys.stderr, flush=True)
    answer, problem = finish_probe(probe, TORCH_S)
    if problem:
        return Finding(
            "torch", False, f"{installed_version('torch')}: {problem}", "reinstall torch for this machine"
        )
    devices: list[str] = answer.get("devices") or list[str]()
    if not devices and any(model.gang.device.startswith("cuda") for model in config.video_models):
        built = f"built for CUDA {answer['cuda']}" if answer.get("cuda") else "built without CUDA"
        return Finding(
            "torch", False, f"{answer.get('version')} ({built}) sees no GPU", "install a CUDA build"
        )
    return Finding("torch", True, f"{answer.get('version')}, {len(devices)} CUDA devices")


def start_torch_probe() -> "subprocess.Popen[str] | None":
    """Takes seconds, so that other checks run meanwhile; None when torch is not installed."""
    return start_probe(_TORCH_PROBE) if installed_version("torch") else None


def start_probe(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish_probe(probe: "subprocess.Popen[str]", limit_s: float) -> tuple[dict[str, Any], str]:
    """What the probe printed, or what is wrong."""
    try:
        out, err = probe.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        probe.kill()
        probe.communicate()
        return {}, f"did not answer within {duration(limit_s)}"
    if probe.returncode:
        return {}, (err.strip().splitlines() or [f"died with {probe.returncode}"])[-1]
    return json.loads(out.strip().splitlines()[-1]), ""


def installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("turnout") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _nearest(path: Path) -> Path:
    """The path, or the closest thing above it that is there."""
    return next((p for p in (path, *path.parents) if p.exists()), Path("/"))
