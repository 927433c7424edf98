"""Evaluation: metrics, suites, tables of settings, a resumable runner, reports."""
