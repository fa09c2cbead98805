"""Which GPUs this machine has, by NVML; and when there is none, why. The worker and `turnout doctor` both ask here."""

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.fleet.machine_rules import Gpu
from turnout.telemetry.log import get_log

log = get_log()

_MAX_XIDS = 100  # read at once

ReadGpus = Callable[[], tuple[Gpu, ...]]


@dataclass(frozen=True, slots=True)
class GpuFinding:
    """`reason` says why there are no GPUs. It is `broken` when the machine should have one and something is to be
    mended. `capability` is the lowest compute capability of its GPUs."""

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""
    broken: bool = False
    capability: tuple[int, int] | None = None


def find_gpus(
    nvml: Any, root: Path = Path("/"), xids: "XidCounts | None" = None, visible: str | None = None
) -> GpuFinding:
    """`nvml` is the module `pynvml`. It stays initialised: without another user, a GPU would be reset in between.
    `visible` is the user's own CUDA_VISIBLE_DEVICES, which leaves us the GPUs that it names and no others."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as err:
        return _without_nvml(nvml, err, root)
    try:
        errors = xids.read() if xids is not None else dict[int, int]()
        seen = _visible(nvml, nvml.nvmlDeviceGetCount(), visible)
        gpus = tuple(_read_gpu(nvml, index, errors) for index in seen)
        capability = min((_capability(nvml, index) for index in seen), default=None)
    except nvml.NVMLError as err:
        return GpuFinding(reason=f"NVIDIA's driver answers, but its GPUs cannot be read: {err}", broken=True)
    if not gpus and visible is not None:
        return GpuFinding(
            reason=f"CUDA_VISIBLE_DEVICES is {visible[:200]!r}, which names no GPU of this machine"
        )
    return GpuFinding(
        gpus, "" if gpus else "NVIDIA's driver is here, but it has no GPU", capability=capability
    )


def _capability(nvml: Any, index: int) -> tuple[int, int]:
    """As (9, 0) for Hopper."""
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(nvml.nvmlDeviceGetHandleByIndex(index))
    return int(major), int(minor)


def _visible(nvml: Any, count: int, visible: str | None) -> list[int]:
    """Indexes in the order of the bus, as NVML counts. As CUDA reads it: what comes after a name that is unknown is not seen."""
    if visible is None:
        return list(range(count))
    seen: list[int] = []
    for word in (word.strip() for word in visible.split(",")):
        found = [int(word)] if word.isdecimal() else []
        if word.startswith("GPU-"):
            found = [index for index in range(count) if _uuid(nvml, index).startswith(word)]
        if len(found) != 1 or found[0] >= count or found[0] in seen:
            break
        seen += found
    return sorted(seen)


def _uuid(nvml: Any, index: int) -> str:
    uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


def _without_nvml(nvml: Any, err: Any, root: Path) -> GpuFinding:
    match err.value:
        case nvml.NVML_ERROR_LIBRARY_NOT_FOUND if _has_amd(root):
            return GpuFinding(reason="an AMD GPU is here, which Turnout does not use: it needs NVIDIA's")
        case nvml.NVML_ERROR_LIBRARY_NOT_FOUND if _has_nvidia(root):
            return GpuFinding(reason="an NVIDIA GPU is here, but no driver for it", broken=True)
        case nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return GpuFinding(reason="no GPU and no NVIDIA driver here")
        case nvml.NVML_ERROR_DRIVER_NOT_LOADED if not _has_nvidia(root):
            return GpuFinding(reason="NVIDIA's libraries are here, but its driver is not loaded")
        case nvml.NVML_ERROR_DRIVER_NOT_LOADED:
            return GpuFinding(reason="NVIDIA's driver is installed, but not loaded", broken=True)
        case nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            return GpuFinding(reason="NVIDIA's driver was updated: restart the machine", broken=True)
        case _:
            return GpuFinding(reason=f"NVIDIA's driver does not answer: {err}", broken=True)


def _read_gpu(nvml: Any, index: int, xid_errors: Mapping[int, int]) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    name = nvml.nvmlDeviceGetName(handle)

    def figure(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except nvml.NVMLError:
            return None  # not every card has it

    busy = figure(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    milliwatts = figure(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    return Gpu(
        index,
        int(memory.total),
        int(memory.free),
        name.decode() if isinstance(name, bytes) else str(name),
        None if busy is None else busy / 100,
        None if milliwatts is None else milliwatts / 1000,
        figure(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        figure(
            lambda: int(
                nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            )
        ),
        xid_errors.get(index, 0),
    )


class XidCounts:
    """How many errors the driver has reported of each GPU (by its index) since we listen. A machine whose driver does not
    report them has none."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._events: Any = None
        self._counts: Counter[int] = Counter()

    def read(self) -> Mapping[int, int]:
        """Call it when NVML is initialised; it never waits."""
        nvml = self._nvml
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for index in range(nvml.nvmlDeviceGetCount()):
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            for _ in range(_MAX_XIDS):
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                index = nvml.nvmlDeviceGetIndex(event.device)
                self._counts[index] += 1
                log.error("GPU error", gpu=index, xid=int(event.eventData))
        except nvml.NVMLError:
            pass  # there is none (a time-out), or this driver reports none
        return self._counts


def _has_amd(root: Path) -> bool:
    """By the driver's device for computing, or by a card that it drives."""
    return (root / "dev/kfd").exists() or _has_driver(root, "amdgpu")


def _has_nvidia(root: Path) -> bool:
    """By the vendor and class of the devices on the bus: also without any driver."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        if vendor.strip() == "0x10de" and kind.startswith("0x03"):
            return True
    return False


def _has_driver(root: Path, name: str) -> bool:
    cards = (root / "sys/class/drm").glob("card*/device/driver")
    return any(card.resolve().name == name for card in cards)


def pynvml() -> Any:
    return importlib.import_module("pynvml")


class GpuReader:
    """Reads the GPUs each time it is called, and logs what it finds whenever that has changed.

    A driver that is loaded late and a GPU that falls off the bus are both noticed.
    """

    def __init__(self, find: Callable[[], GpuFinding]) -> None:
        self._find = find
        self.reason = ""  # why there were none
        self._last: tuple[object, ...] | None = None

    def __call__(self) -> tuple[Gpu, ...]:
        found = self._find()
        self.reason = found.reason
        now = (*((gpu.index, gpu.name, gpu.total_bytes) for gpu in found.gpus), found.reason)
        if now != self._last:
            self._last = now
            _tell(found)
        return found.gpus


def _tell(found: GpuFinding) -> None:
    if found.gpus:
        log.info("GPUs found", gpus=[f"{gpu.name} ({gpu.total_bytes / 2**30:.0f} GiB)" for gpu in found.gpus])
    elif found.broken:
        log.warning("no GPUs found", reason=found.reason)
    else:
        log.info("no GPUs found", reason=found.reason)


def open_gpus(visible: str | None = None) -> GpuReader:
    nvml = pynvml()
    xids = XidCounts(nvml)
    return GpuReader(lambda: find_gpus(nvml, xids=xids, visible=visible))
