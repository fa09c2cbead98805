"""Runs the roles on a Ray cluster: gangs and the gateway as Serve deployments, the manager as a detached actor.

Whoever imports these modules needs the extra `ray`.
"""
