"""The training of the pocket models."""
