"""The cost of bits in a prefill.

Random weights at the shapes of Llama3-8B and Qwen2.5-VL-7B, Keys and Values of trained spectra
(`benchmarks.kernels.prefill`), 2,880 visual tokens. A prefill alone, and with each arm behind it,
run in turn; then each arm's parts with the device waited for around each, what it launches and how
often the host waits. Last the solver alone: its time and what is lost along its axes, over
eigenvectors. `tiny` runs the same lines on the CPU, where nothing is captured.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.kernels.model import LLAMA, QWEN, Decoder, Sizes
from benchmarks.kernels.prefill import TEXT, WINDOW, trained_keys
from benchmarks.timing import capture, in_turn, seconds
from kernels.reference import Text
from rotatek.methods import rotation
from rotatek.methods.calibration import Calibrator
from rotatek.methods.channels import RotateK, mixed_precision
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.batched_rotation import LayerGroup
from rotatek.methods.channels.bit_allocation import DISTORTION, BitDemand, allot_bits
from rotatek.methods.channels.bit_bases import in_metric
from rotatek.methods.rotation import solvers
from rotatek.methods.rotation.stored_bases import load_axes
from tests.launches import Launches, kernels_replaced

SOLVES: Final = {"steps_of": "steps", "pack_states": "packing"}  # by what is solved
TINY: Final = Sizes("tiny", 64, 128, 2, 4, 2, 100, d=64)
PARTS: Final = {  # what is timed, by where its callers find it
    "looks": (mixed_precision, "importance"),
    "moments": (rotation, "weighted_moments"),
    "axes": (mixed_precision, "find_axes"),
    "allotment": (mixed_precision, "allot_groups"),
    "solve": (mixed_precision, "solve"),
}
SOLVERS: Final = ((16, 5), (32, 2), (32, 3), (32, 4), (32, 5), (64, 4))  # block, iterations
WAITS: Final = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
Run = Callable[[], Any]


def layers_of(sizes: Sizes, N: int, device: str) -> list[LayerStates]:
    """The states of one prompt's layers."""
    draw = partial(torch.randn, device=device, dtype=torch.bfloat16)
    keys, values = (trained_keys(sizes, N, device) for _ in range(2))
    lengths = torch.full((1,), N, dtype=torch.int32, device=device)
    alive = torch.ones(1, WINDOW, dtype=torch.bool, device=device)
    text = Text(draw(1, sizes.Hkv, TEXT, sizes.d), draw(1, sizes.Hkv, TEXT, sizes.d))
    stream = draw(1, 1, WINDOW, sizes.hidden)
    half = torch.rand(sizes.Hkv, sizes.d, sizes.d, device=device) / sizes.d
    metric = rotation.metric_root(half @ half.mT + torch.eye(sizes.d, device=device))
    return [
        LayerStates(
            key, value, lengths, draw(1, sizes.Hq, WINDOW, sizes.d), alive, number,
            value_metric=metric, text=text, entering=lambda: stream,
        )
        for number, (key, value) in enumerate(zip(keys, values, strict=True))
    ]  # fmt: skip


def calibrated(layers: Sequence[LayerStates], folder: Path) -> list[LayerStates]:
    """The same with the axes of a calibration of themselves."""
    found = Calibrator()
    for layer in layers:
        found.record(layer)
    found.save(folder / "axes.safetensors", "random")
    axes = load_axes(folder / "axes.safetensors", len(layers))
    return [_with(layer, basis=one) for layer, one in zip(layers, axes, strict=True)]


def _with(layer: LayerStates, **changed: Any) -> LayerStates:
    """A layer of which nothing has been worked out yet."""
    return LayerStates(**{**vars(layer), "made": {}, **changed})


def compress(layers: Sequence[LayerStates], method: RotateK) -> list[Any]:
    """A cache's work on the layers of a prefill."""
    stores = []
    for layer in layers:
        stores.append(method.measure(_with(layer)))
        method.pack(stores, last=layer is layers[-1])
    return stores


def rounded_ms(arms: dict[str, Run], rounds: int) -> dict[str, float]:
    """Milliseconds of arms that take turns, two to warm up and to compile."""
    return {name: round(ms, 4) for name, ms in in_turn(arms, rounds).items()}


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Milliseconds that the parts take, with the device waited for around each."""
    spent: dict[str, float] = defaultdict(float)
    with ExitStack() as stack:
        for name, (module, function) in PARTS.items():
            plain = getattr(module, function)

            def run(*given: Any, _name: str = name, _plain: Run = plain, **more: Any) -> Any:
                found: list[Any] = []
                took = seconds(lambda: found.append(_plain(*given, **more)))
                spent[SOLVES[given[0]] if _name == "solve" else _name] += 1e3 * took
                return found[0]

            stack.enter_context(mock.patch.object(module, function, run))
        yield spent


def parts_of(run: Run, rounds: int) -> dict[str, float]:
    """The median of every part of an arm, and of all of it."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        with timed() as spent:
            spent["all"] += 1e3 * seconds(run)
        for name, took in spent.items():
            found[name].append(took)
    return {name: round(statistics.median(each), 4) for name, each in found.items()}


def traffic(run: Run, device: str) -> dict[str, int]:
    """Launches of one call, copies among them, and how often the host waits."""
    if device != "cuda":
        with Launches() as counted, kernels_replaced(counted):
            run()
        return {"launches": counted.count}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run()
    torch.cuda.synchronize()
    names = [event.name for event in seen.events()]
    launched = [n for n in names if "LaunchKernel" in n or "cudaMemcpy" in n or "cudaMemset" in n]
    waits = sum(name in WAITS for name in names) - (names[-1] in WAITS)
    return {"launches": len(launched), "waits": waits}


def solver(layers: Sequence[LayerStates], rounds: int) -> dict[str, Any]:
    """Milliseconds of each way to all axes, and the squared error along them over eigenvectors'."""
    sides = mixed_precision.moments(LayerGroup([_with(layer) for layer in layers]))
    matrices = torch.cat([in_metric(side).flatten(0, 1) for side in sides])
    d = matrices.shape[-1]
    ways: dict[str, Run] = {"one pass, 16 iterations": lambda: rotation.nested_basis(matrices, d)}
    for block, iterations in SOLVERS:

        def run(block: int = block, iterations: int = iterations) -> Any:
            with mock.patch.multiple(solvers, BLOCK=block, BLOCK_ITERATIONS=iterations):
                return rotation.ordered_basis(matrices, d)

        ways[f"blocks of {block}, {iterations} iterations"] = run
    best = lost(rotation.full_basis(matrices)[0], matrices)
    times = rounded_ms(ways, rounds)
    return {
        name: {"ms": times[name], "error": round(lost(run()[0], matrices) / best - 1, 5)}
        for name, run in ways.items()
    }


def lost(basis: Tensor, matrices: Tensor) -> float:
    """Squared error of .75 bits a number along the columns of bases, matrices of one budget."""
    energy = ((matrices @ basis) * basis).sum(-2).clamp(min=0).sort(-1, descending=True).values
    loss = energy.double()[None, None].cpu()
    claim = BitDemand(loss, torch.full((1, 1), 2880), 132, basis.shape[-1])
    (depths,) = allot_bits([claim], 0.75)
    shares = loss.new_zeros(9)
    for depth, share in DISTORTION.items():
        shares[depth] = share
    return float((loss * shares[depths.long()]).sum())


def model(sizes: Sizes, N: int, rounds: int, device: str, folder: Path) -> dict[str, Any]:
    """One model's figures."""
    layers = layers_of(sizes, N, device)
    lent = calibrated(layers, folder)
    arms: dict[str, Run] = {
        f"bits {count:g}": partial(compress, layers, RotateK(bits=count))
        for count in (0.5, 0.75, 1.0)
    }
    for count in (0.75, 1.0):
        arms[f"bits {count:g}, calibrated"] = partial(compress, lent, RotateK(bits=count))
    run: Run = partial(torch.zeros, 1)
    if device == "cuda":
        run = capture([Decoder(sizes).prefill(N + TEXT)]).replay
    both = {f"prefill, {name}": partial(_after, run, arm) for name, arm in arms.items()}
    ms = rounded_ms({"prefill": run} | both, rounds)
    return {
        "ms": ms,
        "added": {
            name.removeprefix("prefill, "): round(took / ms["prefill"] - 1, 5)
            for name, took in ms.items()
            if name != "prefill"
        },
        "alone": rounded_ms(arms, rounds),
        "parts": {name: parts_of(arm, max(3, rounds // 2)) for name, arm in arms.items()},
        "traffic": {name: traffic(arm, device) for name, arm in arms.items()},
        "solver": solver(layers, max(3, rounds // 3)),
    }


def _after(run: Run, arm: Run) -> Any:
    """A prefill, and what an arm does behind it."""
    run()
    return arm()


@torch.inference_mode()
def bits_prefill(tiny: bool = False, rounds: int = 9, visual: int = 2880) -> dict[str, Any]:
    """Both models' figures; visual: tokens of the picture."""
    device, models = ("cpu", [TINY]) if tiny else ("cuda", [LLAMA, QWEN])
    visual = 200 if tiny else visual
    report: dict[str, Any] = {"tokens": visual}
    with TemporaryDirectory() as folder:
        for sizes in models:
            report[sizes.name] = model(sizes, visual, rounds, device, Path(folder))
    return report
