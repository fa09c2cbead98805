"""Child processes: each has one owner, dies with its parent, and writes a bounded log."""
