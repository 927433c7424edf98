"""TODO benchmarks/tests."""
