"""Answers for many visitors at once, without a page: engines, runs, kept conversations, health."""
