"""How well the pocket models read: measured splits, and the suites that the library asks."""
