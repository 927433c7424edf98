"""TODO rotatek/bridge."""
