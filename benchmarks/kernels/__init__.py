"""Benchmarks of the kernels: `python -m benchmarks.kernels NAME [--json FILE]`."""
