"""What Turnout needs from the outside, one module for each need. Adapters implement these protocols; wiring chooses
the adapters.

Every method may raise Unavailable when the service behind it is down. No other error of that service gets out.
"""
