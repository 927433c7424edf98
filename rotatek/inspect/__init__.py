"""What happened inside a run: traces of Keys and queries, where an answer attended, and when to
doubt it."""
