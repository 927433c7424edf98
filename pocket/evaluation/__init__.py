"""Measures of the pocket models' reading: measured splits, and the library's suites."""
