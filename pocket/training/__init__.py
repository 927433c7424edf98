"""How the pocket models are trained."""
