"""The solver against the paper's loop in a graph, CuPy's batched solver and eigh."""

import importlib
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import capture, event_ms, interleaved, plain
from kernels.solver import start_basis, subspace

from .arms import Row
from .solver_check import judge, matrix, solver_report

MATRICES = 256  # 32 layers of 8 key heads: a whole Llama3-8B
WIDTHS = (16, 32, 48, 64)


def key_like(count: int, d: int = 128) -> Tensor:
    """Covariances [count, d, d] with spectra like trained Keys': outliers, a geometric body."""
    i = torch.arange(d, dtype=torch.float64)
    found = []
    for seed in range(min(count, 32)):
        decay = 0.88 + 0.08 * (seed % 8) / 7
        found.append(matrix(decay**i * (1 + 30.0 * (i < 2)) + 1e-3, seed))
    return torch.stack(found).repeat(-(-count // len(found)), 1, 1)[:count].cuda()


def paper_loop(matrices: Tensor, start: Tensor, eye: Tensor) -> Tensor:
    """The printed iteration: V <- C V, G = V^T V + eps, Cholesky, triangular solve."""
    v = start
    for _ in range(5):
        v = matrices @ v
        gram = v.mT @ v
        ridge = 1e-4 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
        factor = torch.linalg.cholesky_ex(gram + ridge * eye, check_errors=False)[0]
        v = torch.linalg.solve_triangular(factor.mT, v, upper=True, left=False)
    return v


def solver(rounds: int = 11) -> Row:
    """Milliseconds for 256 matrices of 128 x 128, with the quality of every result beside them."""
    matrices = key_like(MATRICES)
    row: Row = {"matrices": MATRICES, "ms": {}, "quality": {}}
    graphs: dict[str, Any] = {}
    for k in WIDTHS:
        start = start_basis(128, k, matrices.device)
        graphs[f"ours k={k}"] = capture([partial(subspace, matrices, k, start=start)])
        row["quality"][f"ours k={k}"] = _quality(matrices, subspace(matrices, k))
    start = start_basis(128, 32, matrices.device)
    graphs["ours, one layer (8)"] = capture([partial(subspace, matrices[:8], 32, start=start)])
    wide, eye = start.expand(MATRICES, 128, 32).contiguous(), torch.eye(32, device=matrices.device)
    printed = partial(paper_loop, matrices, wide, eye)
    row["quality"]["paper's loop k=32"] = _quality(matrices, printed())
    try:
        graphs["paper's loop k=32"] = capture([printed])
    except RuntimeError as error:
        row["refused"] = f"paper's loop: {str(error)[:80]}"
    times = interleaved(graphs, 1, rounds)
    row["ms"] = {name: timing.us / 1e3 for name, timing in times.items()} | _slow_arms(matrices)
    row["spread_us"] = plain(times)
    row["spectra"] = solver_report("cuda")
    return row


def _slow_arms(matrices: Tensor) -> dict[str, float]:
    found = {"torch.linalg.eigh": event_ms(lambda: torch.linalg.eigh(matrices), 2)}
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        return found
    view = cupy.from_dlpack(matrices)
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        found["CuPy batched eigh"] = event_ms(lambda: cupy.linalg.eigh(view), 7)
    return found


def _quality(matrices: Tensor, basis: Tensor) -> dict[str, float]:
    found = judge(matrices[:32], basis[:32])
    return {
        "orthonormality": float(found["slip"].max()),
        "energy": float(found["energy"].min()),
        "residual_over_optimum": float(found["residual"].max()),
    }
