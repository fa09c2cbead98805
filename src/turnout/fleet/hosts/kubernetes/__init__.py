"""One job on Kubernetes for each task of the models whose runner is `job`."""
