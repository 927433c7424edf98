"""TODO pocket/tests."""
