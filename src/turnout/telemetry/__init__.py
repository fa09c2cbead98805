"""What the service tells of itself: the log, metrics, traces, health, and the history of a day."""
