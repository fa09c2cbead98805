"""The name of the GPU that a rank has, for the accounts of gangs that others start."""

import os

from turnout.worker.gpus import find_gpus, pynvml


def own_gpu_name(number: int = 0) -> str:
    """Of the GPU that this process sees under this number; "" where there is none."""
    gpus = find_gpus(pynvml(), visible=os.environ.get("CUDA_VISIBLE_DEVICES")).gpus
    return gpus[number].name if number < len(gpus) else ""
