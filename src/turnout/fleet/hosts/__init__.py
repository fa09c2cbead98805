"""Who runs gangs beside our workers: Ray, and jobs on Kubernetes. They observe gangs and carry out orders."""
