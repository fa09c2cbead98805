"""Connections inside a WebSocket: a worker that nobody can reach dials out, and gateways call it through that.

`mux` carries many byte streams over one channel, each with a window of its own; `gateway_end` and `worker_end` are its two
ends. Both are plain connections on loopback, so the relay and the worker's proxy know nothing of tunnels.
"""
