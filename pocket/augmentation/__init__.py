"""What cameras, scanners and chat programs do to a picture, and what stands beside its text."""
