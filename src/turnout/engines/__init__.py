"""What computes: each engine turns one request into a result on the ranks it is given, and talks to nobody."""
