"""Records of a run: traces of Keys and queries, and the attention of an answer."""
