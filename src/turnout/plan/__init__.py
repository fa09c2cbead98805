"""What a set of models would cost and how long people would wait: the decisions of the service in a simulated world."""
