# pyright: reportMissingImports=false
"""The foreign classes that a gang renders with: diffusers' VAE and solver. As Any: their annotations are too loose for a strict
checker, and one place that says so is better than a dozen.

diffusers imports all of its models and transformers with the first one that is asked for: 3.6 s of CPU before a gang's first step,
where these two need 0.7. So they are imported while those packages seem to be empty, and what is not needed seems not to be
installed. Models are there afterwards for whoever asks diffusers for them, pipelines are not: a process that needs those imports
diffusers first. Its version is pinned.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_NOT_NEEDED = ("torch._dynamo", "transformers", "peft")
_HOLD_ALL_MODELS = ("models.autoencoders", "models.transformers", "models.unets")


@contextmanager
def _little_of_diffusers() -> Generator[None]:
    if "diffusers" in sys.modules:
        yield
        return
    found = find_spec("diffusers")
    assert found is not None and found.submodule_search_locations, "diffusers is not installed"
    (root,) = found.submodule_search_locations
    placed: list[str] = []
    for name in _NOT_NEEDED:
        if name not in sys.modules:
            sys.modules[name] = None  # type: ignore[assignment] - how Python says that there is none
            placed.append(name)
    for name in _HOLD_ALL_MODELS:
        empty = ModuleType(f"diffusers.{name}")
        empty.__path__ = [f"{root}/{name.replace('.', '/')}"]
        sys.modules[empty.__name__] = empty
        placed.append(empty.__name__)
    try:
        yield
    finally:
        for name in placed:
            del sys.modules[name]


with _little_of_diffusers():
    AutoencoderKLWan: Any = import_module("diffusers.models.autoencoders.autoencoder_kl_wan").AutoencoderKLWan
    UniPCMultistepScheduler: Any = import_module(
        "diffusers.schedulers.scheduling_unipc_multistep"
    ).UniPCMultistepScheduler
