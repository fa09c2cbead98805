"""Chooses the adapters behind the ports and starts the roles. Nothing else knows which adapter is behind a port."""
