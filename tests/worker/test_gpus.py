"""Which GPUs there are, and the reason for none: a stand-in for NVML, and a /dev and /sys of a test's making."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from turnout.fleet.machine_rules import Gpu
from turnout.worker.gpus import GpuFinding, GpuReader, XidCounts, find_gpus, pynvml

REAL = pynvml()


class StandIn:
    """NVML as far as we use it, with the real one's errors."""

    NVMLError = REAL.NVMLError
    NVML_ERROR_LIBRARY_NOT_FOUND = REAL.NVML_ERROR_LIBRARY_NOT_FOUND
    NVML_ERROR_DRIVER_NOT_LOADED = REAL.NVML_ERROR_DRIVER_NOT_LOADED
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = REAL.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    NVML_TEMPERATURE_GPU = REAL.NVML_TEMPERATURE_GPU
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = REAL.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    NVML_VOLATILE_ECC = REAL.NVML_VOLATILE_ECC
    nvmlEventTypeXidCriticalError = REAL.nvmlEventTypeXidCriticalError

    def __init__(self, *gpus: str, start: int = 0, read: int = 0) -> None:
        self._gpus, self._start, self._read = gpus, start, read
        self.xids: list[int] = []

    def nvmlInit(self) -> None:
        if self._start:
            raise REAL.NVMLError(self._start)

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if self._read:
            raise REAL.NVMLError(self._read)
        return index

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> list[int]:
        return [9, handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=10 * (handle + 1), free=4)

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self._gpus[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}{handle}-abc"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=75)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 350_000

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, since: int) -> int:
        if handle == 1:
            raise REAL.NVMLError(REAL.NVML_ERROR_NOT_SUPPORTED)
        return 2

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: object) -> None:
        assert kinds == REAL.nvmlEventTypeXidCriticalError

    def nvmlEventSetWait_v2(self, events: object, wait_ms: int) -> Any:
        assert wait_ms == 0, "a heartbeat never waits for errors"
        if not self.xids:
            raise REAL.NVMLError(REAL.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(device=self.xids.pop(), eventData=79)

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle


def test_gpus_are_numbered_named_and_measured(tmp_path: Path) -> None:
    nvml = StandIn("NVIDIA A", "NVIDIA B")
    found = find_gpus(nvml, tmp_path)
    assert found == GpuFinding(
        (
            Gpu(0, 10, 4, "NVIDIA A", 0.75, 350.0, 61.0, 2),
            Gpu(1, 20, 4, "NVIDIA B", 0.75, 350.0, 61.0, None),
        ),
        capability=(9, 0),
    )


def test_errors_that_the_driver_reports_are_counted_by_gpu(tmp_path: Path) -> None:
    nvml = StandIn("NVIDIA A", "NVIDIA B")
    xids = XidCounts(nvml)

    def seen() -> list[int]:
        return [gpu.xid_errors for gpu in find_gpus(nvml, tmp_path, xids).gpus]

    assert seen() == [0, 0]
    nvml.xids += [1, 1]
    assert seen() == [0, 2]
    assert seen() == [0, 2]


def pci(root: Path, vendor: str, kind: str) -> None:
    device = root / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")


@pytest.mark.parametrize(
    ("nvml", "hardware", "says", "broken"),
    [
        (StandIn(start=REAL.NVML_ERROR_LIBRARY_NOT_FOUND), "", "no GPU and no NVIDIA driver", False),
        (StandIn(start=REAL.NVML_ERROR_LIBRARY_NOT_FOUND), "kfd", "an AMD GPU", False),
        (StandIn(start=REAL.NVML_ERROR_LIBRARY_NOT_FOUND), "amdgpu", "an AMD GPU", False),
        (StandIn(start=REAL.NVML_ERROR_LIBRARY_NOT_FOUND), "nvidia", "but no driver for it", True),
        (StandIn(start=REAL.NVML_ERROR_LIBRARY_NOT_FOUND), "nvidia audio", "no GPU and no NVIDIA", False),
        (StandIn(start=REAL.NVML_ERROR_DRIVER_NOT_LOADED), "", "driver is not loaded", False),
        (StandIn(start=REAL.NVML_ERROR_DRIVER_NOT_LOADED), "nvidia", "installed, but not loaded", True),
        (StandIn(start=REAL.NVML_ERROR_LIB_RM_VERSION_MISMATCH), "", "restart the machine", True),
        (StandIn(start=REAL.NVML_ERROR_NO_PERMISSION), "", "Insufficient Permissions", True),
        (StandIn(), "", "driver is here, but it has no GPU", False),
        (StandIn("gone", read=REAL.NVML_ERROR_GPU_IS_LOST), "", "GPU is lost", True),
    ],
)
def test_the_reason_for_no_gpu_is_told(
    tmp_path: Path, nvml: StandIn, hardware: str, says: str, broken: bool
) -> None:
    match hardware:
        case "kfd":
            (tmp_path / "dev").mkdir()
            (tmp_path / "dev/kfd").touch()
        case "amdgpu":
            (tmp_path / "sys/class/drm/card0/device").mkdir(parents=True)
            (tmp_path / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
            (tmp_path / "sys/class/drm/card0/device/driver").symlink_to(
                tmp_path / "sys/bus/pci/drivers/amdgpu"
            )
        case "nvidia":
            pci(tmp_path, "0x10de", "0x030200")
        case "nvidia audio":
            pci(tmp_path, "0x10de", "0x040300")
        case _:
            pass
    found = find_gpus(nvml, tmp_path)
    assert found.gpus == () and found.broken is broken
    assert says in found.reason


def test_what_was_found_is_logged_once_and_again_when_it_changes() -> None:
    findings = iter(
        [
            GpuFinding(reason="no driver", broken=True),
            GpuFinding(reason="no driver", broken=True),
            GpuFinding((Gpu(0, 8 << 30, 8 << 30, "NVIDIA A"),)),
            GpuFinding((Gpu(0, 8 << 30, 2 << 30, "NVIDIA A"),)),
        ]
    )
    read = GpuReader(lambda: next(findings))
    with capture_logs() as lines:
        assert [len(read()) for _ in range(4)] == [0, 0, 1, 1]
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("no GPUs found", "warning"),
        ("GPUs found", "info"),
    ]
    assert lines[1]["gpus"] == ["NVIDIA A (8 GiB)"]


@pytest.mark.parametrize(
    ("visible", "indexes"),
    [
        (None, [0, 1, 2]),
        ("2,0", [0, 2]),
        ("1", [1]),
        ("", []),
        ("-1", []),
        ("0,7,1", [0]),
        ("GPU-22-abc,GPU-0", [0, 2]),
        ("GPU-x", []),
        ("0, 0", [0]),
    ],
)
def test_the_users_own_choice_of_gpus_is_kept(visible: str | None, indexes: list[int]) -> None:
    found = find_gpus(StandIn("a", "b", "c"), visible=visible)
    assert [gpu.index for gpu in found.gpus] == indexes
    assert ("CUDA_VISIBLE_DEVICES" in found.reason) == (not indexes)
