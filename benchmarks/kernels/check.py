"""`python -m benchmarks.kernels.check [--device cuda] [--json FILE]`: the correctness grid on
hardware.

Every case is compared with float64. Its error may be at most twice that of plain PyTorch in the
same type, plus 1e-5, and at most an absolute bar a type; NaN never passes. Scratch memory is
poisoned.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels.reference import misaligned

from .cases import DEVICE_BAR, Case, attend_plain, branches, grid, make, widths

Attend = Callable[..., Tensor]


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Every floating torch.empty holds NaN while this lasts."""
    plain = torch.empty

    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        tensor = plain(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    torch.empty = poisoned  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.empty = plain


def errors(case: Case, attend: Attend, device: str, seed: int = 0) -> tuple[float, float]:
    """(largest error of `attend`, largest error of plain PyTorch in the case's type)."""
    q, visual, text = make(case, device, seed)
    if visual is not None and misaligned(visual):
        raise ValueError(f"{case} breaks what kernels rely on: {misaligned(visual)}")
    scale = case.d**-0.5
    truth = attend_plain(q, visual, text, scale, torch.float64)
    plain = attend_plain(q, visual, text, scale, case.dtype)
    with poisoned_memory():
        got = attend(q, visual, text, scale)
    if got.shape != q.shape or got.dtype != q.dtype or not bool(got.isfinite().all()):
        return float("inf"), 0.0
    gap = float((got.double() - truth).abs().max())
    return gap, float((plain.double() - truth).abs().max())


def passes(case: Case, gap: float, plain: float) -> bool:
    """The bar: 2x plain PyTorch + 1e-5, and the type's absolute one (8-bit packs: the former)."""
    return gap <= 2 * plain + 1e-5 and gap <= DEVICE_BAR[case.dtype]


def run(attend: Attend, device: str, cases: list[tuple[int, Case]]) -> dict[str, Any]:
    """Check cases with their seeds: counts, the worst error ratio a type, every failure in full."""
    worst: dict[str, dict[str, float]] = defaultdict(lambda: {"error": 0.0, "over_plain": 0.0})
    failures = []
    for seed, case in cases:
        gap, plain = errors(case, attend, device, seed)
        row = worst[str(case.dtype).removeprefix("torch.")]
        row["error"] = max(row["error"], gap)
        row["over_plain"] = max(row["over_plain"], gap / (plain + 1e-5))
        if not passes(case, gap, plain):
            fields = {**asdict(case), "dtype": str(case.dtype)}
            failures.append({"case": fields, "error": gap, "plain": plain})
    return {
        "cases": len(cases),
        "failed": len(failures),
        "worst": dict(worst),
        "failures": failures,
    }


def graph_follows_growth(steps: int = 40) -> bool:
    """One captured call, replayed while text grows, equals fresh calls bit for bit."""
    from kernels.attention_launch import attend_triton  # noqa: PLC0415

    q, visual, text = make(Case(torch.bfloat16, N=864, M=64, ragged=True), "cuda")
    assert visual is not None
    keys, values = (t.nan_to_num(0.0) for t in (text.keys, text.values))
    lengths = torch.tensor([1, 9], dtype=torch.int32, device="cuda")
    text = text._replace(keys=keys, values=values, lengths=lengths)
    attend_triton(q, visual, text, 0.1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attend_triton(q, visual, text, 0.1)
    for _ in range(steps):
        lengths += 1
        q.normal_()
        graph.replay()
        if not torch.equal(out, attend_triton(q, visual, text, 0.1)):
            return False
    return True


def _shard(device: str, cases: list[tuple[int, Case]]) -> dict[str, Any]:
    from kernels.attention_launch import attend_triton  # noqa: PLC0415  (Triton loads in the worker)

    torch.set_num_threads(1)  # the workers fill the cores
    return run(attend_triton, device, cases)


def _solver(device: str) -> dict[str, Any]:
    from .solver_check import solver_report  # noqa: PLC0415

    torch.set_num_threads(1)
    return solver_report(device)


def sampled(every: int) -> list[Case]:
    """Every n-th case of the grid, and always those of other paths and of other head widths."""
    return grid()[::every] + branches() + widths()


def families(cases: list[Case]) -> list[list[tuple[int, Case]]]:
    """Cases with their numbers, those that compile alike together, the longest lists first."""
    found: dict[tuple[object, ...], list[tuple[int, Case]]] = defaultdict(list)
    for number, case in enumerate(cases):
        alike = (case.dtype, case.pack, case.k, case.d, case.r, case.ragged, case.strided)
        found[alike].append((number, case))
    return sorted(found.values(), key=len, reverse=True)


def run_parallel(device: str, cases: list[Case], workers: int) -> dict[str, Any]:
    """`run` over processes, the solver's report in one: compiling takes most of the time, so no two
    compile the same.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        solver = pool.submit(_solver, device)
        shards = families(cases)
        parts = list(pool.map(_shard, [device] * len(shards), shards))
        solved = solver.result()
    worst: dict[str, dict[str, float]] = {}
    for part in parts:
        for name, row in part["worst"].items():
            best = worst.setdefault(name, dict(row))
            worst[name] = {key: max(best[key], row[key]) for key in row}
    return {
        "cases": len(cases),
        "failed": sum(part["failed"] for part in parts),
        "worst": worst,
        "failures": [row for part in parts for row in part["failures"]],
        "solver": solved,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every n-th case of the grid")
    parser.add_argument("--packs", help="only these ways to store the cache, divided by semicolons")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    options = parser.parse_args()
    cases = sampled(options.every)
    if options.packs:
        cases = [case for case in cases if case.pack in options.packs.split(";")]
    report = run_parallel(options.device, cases, options.workers)
    if options.device == "cuda":
        report["graph_follows_growth"] = graph_follows_growth()
        report["hardware"] = torch.cuda.get_device_name()
    report["torch"] = torch.__version__
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    for row in report["failures"][:10]:
        print("FAIL", row)
    print(f"attention: {report['cases'] - report['failed']} of {report['cases']} pass")
    for name, row in report["worst"].items():
        print(f"  {name}: error {row['error']:.2e}, {row['over_plain']:.2f}x plain PyTorch")
    print("solver:", json.dumps(report["solver"]))
    print("graph follows growing text:", report.get("graph_follows_growth", "not on a GPU"))
    wrong = report["failed"] or report["solver"]["failed"]
    return 1 if wrong or not report.get("graph_follows_growth", True) else 0


if __name__ == "__main__":
    sys.exit(main())
