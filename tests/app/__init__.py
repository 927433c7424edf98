"""The page without a browser: its words, its figures, its API, and what it refuses."""
