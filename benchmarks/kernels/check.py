"""The correctness grid on hardware: all kernels against float64.

A case's error may be at most twice that of plain PyTorch in the same type, plus 1e-5, and at most
an absolute bar a type; NaN never passes. Scratch memory is poisoned.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.harness import chosen
from kernels.reference import misaligned

from .cases import DEVICE_BAR, Case, attend_plain, branches, grid, make, widths

Attend = Callable[..., Tensor]
WORKERS: Final = max(1, (os.cpu_count() or 2) - 2)


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


def shard(device: str, cases: list[tuple[int, Case]]) -> dict[str, Any]:
    """`run` in a process of its own."""
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


def run_parallel(device: str, cases: list[Case], workers: int = WORKERS) -> dict[str, Any]:
    """`run` over processes, the solver's report in one: compiling takes most of the time, so no two
    compile the same.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        solver = pool.submit(_solver, device)
        shards = families(cases)
        parts = list(pool.map(shard, [device] * len(shards), shards))
        solved = solver.result()
    worst: dict[str, dict[str, float]] = {}
    for name, row in (pair for part in parts for pair in part["worst"].items()):
        best = worst.setdefault(name, row)
        worst[name] = {key: max(best[key], row[key]) for key in row}
    failures = [row for part in parts for row in part["failures"]]
    return {
        "cases": len(cases), "failed": len(failures), "worst": worst, "failures": failures,
        "solver": solved,
    }  # fmt: skip


def check(
    device: str = "cuda",
    every: int = 1,
    packs: Sequence[str] | None = None,
    workers: int | None = None,
) -> dict[str, Any]:
    """All kernels against float64.

    Args:
        device: "cpu" runs them in Triton's interpreter, with TRITON_INTERPRET=1.
        every: takes every n-th case of the grid.
        packs: only cases of these ways to store the cache.
        workers: processes.
    """
    packs = chosen(packs, dict.fromkeys(case.pack for case in sampled(1)))
    cases = [case for case in sampled(every) if case.pack in packs]
    report = run_parallel(device, cases, workers or WORKERS)
    if device == "cuda":
        report["graph_follows_growth"] = graph_follows_growth()
        report["hardware"] = torch.cuda.get_device_name()
    return report


def faults(report: Mapping[str, Any]) -> list[str]:
    """The faults, a sentence each."""
    wrong = [f"attention, {row}" for row in report["failures"][:10]]
    if report["failed"] > len(wrong):
        wrong.append(f"{report['failed']} of {report['cases']} cases of attention fail")
    if report["solver"]["failed"]:
        wrong.append(f"the solver: {report['solver']}")
    if not report.get("graph_follows_growth", True):
        wrong.append("a captured call does not follow growing text")
    return wrong
