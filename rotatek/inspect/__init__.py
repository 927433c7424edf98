"""TODO rotatek/inspect."""
