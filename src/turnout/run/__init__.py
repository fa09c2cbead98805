"""The configuration, and one module for each role that can be started. Only the command line and Ray start them."""
