"""The ranks that render a task together: all live, or none. Rank 0 claims and reports; the others obey."""
