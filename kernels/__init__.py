"""Attention and solver kernels: a plain PyTorch reference beside Triton, behind one dispatch."""
