"""Redis and the object store: connections, scripts, records, names of keys, backup, the embedded server; and calls to
addresses that others name, behind one guard."""
