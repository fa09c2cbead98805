"""How fast Turnout is, beside what the same machine could do at best in the same run. See docs/benchmarks.md."""
