"""The effects of cameras, scanners and chat programs on a picture, and clutter around its text."""
