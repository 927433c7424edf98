"""Records of a run: traces of Keys and queries, the attention of an answer, and its doubt."""
