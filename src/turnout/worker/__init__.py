"""The agent of one machine: joins a gateway, starts and stops replicas as ordered, and carries requests to them."""
