"""A package outside the repository adds methods: where they are found, and that they work."""
