"""What happened inside a run: traces of Keys and queries, and where an answer attended."""
