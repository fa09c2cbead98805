"""Stands in for NVML in a service under test: the figures are in a file, which a test may change at any time."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 12, 9, 18
NVML_TEMPERATURE_GPU = NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = 0
nvmlEventTypeXidCriticalError = 8


class NVMLError(Exception):
    value = 10


def _figures() -> list[dict[str, Any]]:
    return json.loads(Path(os.environ["STAND_IN_GPUS"]).read_text())


def nvmlInit() -> None:
    pass


def nvmlDeviceGetCount() -> int:
    return len(_figures())


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetIndex(handle: int) -> int:
    return handle


def nvmlDeviceGetName(handle: int) -> str:
    return "NVIDIA stand-in"


def nvmlDeviceGetMemoryInfo(handle: int) -> Any:
    gpu = _figures()[handle]
    return SimpleNamespace(total=gpu["total"], free=gpu["free"])


def nvmlDeviceGetUtilizationRates(handle: int) -> Any:
    return SimpleNamespace(gpu=50)


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return 300_000


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    return 60


def nvmlDeviceGetTotalEccErrors(handle: int, kind: int, since: int) -> int:
    return int(_figures()[handle].get("ecc", 0))


def nvmlEventSetCreate() -> object:
    return object()


def nvmlDeviceRegisterEvents(handle: int, kinds: int, events: object) -> None:
    pass


def nvmlEventSetWait_v2(events: object, wait_ms: int) -> Any:
    raise NVMLError
