"""Journeys through the page in headless Chromium, on the real program and the embedded model."""
