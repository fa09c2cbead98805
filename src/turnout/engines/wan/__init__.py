"""Wan2.1/2.2 video models in the diffusers on-disk format. `make_engine` is imported from `turnout.engines.wan.load`,
so that reading a model's shape costs no torch import."""
