"""TODO rotatek/methods."""
