"""Turnout serves generative models on your own GPUs: awake when asked, gone when idle."""

__version__ = "0.3.0"
