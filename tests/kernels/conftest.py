"""Kernel tests: on a machine without a GPU, Triton's interpreter runs the kernels."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
