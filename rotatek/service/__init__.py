"""TODO rotatek/service."""
