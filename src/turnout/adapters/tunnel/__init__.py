"""Connections inside a WebSocket: a worker that nobody can reach dials out, and gateways call it through that.

`mux` carries many byte streams over one channel, each with a window of its own; `bank` is the gateway's end, `dialer`
the worker's. Both ends are plain connections on loopback, so that the relay and the worker's door know nothing of it.
"""
