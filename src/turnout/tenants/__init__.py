"""Who may do what, and what it costs: keys, sessions and logins, what ends when they are revoked, usage, GPU time, budgets,
and the audit log."""
