"""TODO rotatek/inputs."""
