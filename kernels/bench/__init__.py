"""Benchmarks of the kernels: `python -m kernels.bench NAME [--json FILE]`."""
