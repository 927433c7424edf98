"""Documents drawn by Pillow: one file a sort of document, listed in `layouts.registry`."""
