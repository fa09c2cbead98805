"""What a rank imports with its first kernels on a GPU, for the process that gangs are forked from. Without a GPU nothing is imported.

torch imports its compiler when an operator that is not its own is called for the first time, FlashAttention 3's among them: 4 of the 8 s
in which an H200 loaded A14B from the page cache.
"""

from importlib import import_module

import torch

from turnout.engines.wan.attention import find_flash3

if torch.cuda.is_available():
    import_module("torch._dynamo")
    import_module("turnout.engines.wan.triton_ops")
    find_flash3()
