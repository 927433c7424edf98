"""Measurements of kernels, memory, serving and quality; nothing here is installed."""
