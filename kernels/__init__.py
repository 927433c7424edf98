"""Attention and solver kernels: plain-torch truth beside Triton, behind one dispatch."""
