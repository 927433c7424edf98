"""The cost of RotateK in a prefill, for Keys of trained spectra and for noise.

`SPECTRA` was read from two embedded models of this project (a Qwen2.5-VL and a LLaVA-NeXT of 128
channels a head): the eigenvalues of the query-weighted covariance that the solver is given, of all
visual Keys, behind the rotary embedding, of the first four pictures of `assets/examples`. 88 heads
in all; the curves are their 10, 50 and 90 % quantiles, a column at a time. The solver takes longer
the flatter a spectrum is, and longest on noise; small models may differ from those of 8B.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from benchmarks.timing import capture, interleaved, plain
from kernels.covariance import covariance, project, weigh
from kernels.solver import start_basis, subspace

from .arms import Row, rows_of
from .model import LLAMA, QWEN, Decoder, Sizes

KEPT, TEXT, WINDOW = 32, 64, 32
COLUMNS: Final = (0, 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 127)
SPECTRA: Final = (  # log10 of each eigenvalue's share; linear between the columns above
    (-0.86, -1.11, -1.30, -1.50, -1.76, -2.15, -2.41, -2.63, -3.10, -3.53, -4.23, -5.36),
    (-0.66, -0.91, -1.10, -1.33, -1.63, -1.95, -2.21, -2.43, -2.77, -3.08, -3.71, -4.60),
    (-0.48, -0.75, -0.96, -1.20, -1.50, -1.79, -1.96, -2.08, -2.29, -2.55, -3.07, -3.73),
)
MEAN: Final = 1.1  # squared length of the mean over the mean squared distance from it: the median


class States(NamedTuple):
    """One layer's states: keys [1, Hkv, N, d], the window's queries [1, Hq, W, d]."""

    keys: Tensor
    lengths: Tensor
    queries: Tensor
    alive: Tensor


def prefill(rounds: int = 9, N: int = 2880) -> Row:
    """Microseconds, and their share of the prefill, of covariance, weights, solve and projection.

    "together" is what `rotatek` does: the Keys of all layers are joined and take four launches
    behind the prefill, on its stream. It is timed by itself; "together, by difference" is the same
    as a prefill with it less one without. "a layer at a time" solves inside every layer (8 or 4
    matrices: latency), in line; "beside" does that on a stream of its own, by difference.
    """
    return rows_of((LLAMA, QWEN), lambda sizes: _row(sizes, rounds, N))


def _row(sizes: Sizes, rounds: int, N: int) -> Row:
    decoder = Decoder(sizes)
    run = decoder.prefill(N + TEXT)
    start = start_basis(sizes.d, KEPT, torch.device("cuda"))
    kinds = {"trained": trained_keys(sizes, N), "noise": noise(sizes, N)}
    graphs = {"prefill": capture([run])}
    for kind, keys in kinds.items():
        layers = [states(sizes, layer) for layer in keys]
        together, apart = partial(rotate, layers, start), partial(_each, layers, start)
        graphs |= {
            f"{kind}: together": capture([together]),
            f"{kind}: together, by difference": capture([run, together]),
            f"{kind}: beside": capture([_beside(run, apart)]),
            f"{kind}: a layer at a time": capture([apart]),
        }
    times = interleaved(graphs, 1, rounds, 20000)
    us = {name: timing.us for name, timing in times.items()}
    for name in us:
        if name.endswith(("difference", "beside")):
            us[name] -= us["prefill"]
    share = {name: us[name] / us["prefill"] for name in us if name != "prefill"}
    spread = plain(times)  # nothing subtracted
    return {"model": sizes.name, "N": N, "us": us, "share": share, "spread_us": spread}


def _curve(points: Sequence[float], d: int) -> Tensor:
    """d shares of one, from log10 shares at `COLUMNS`, which are stretched to d."""
    at = torch.arange(d) * (COLUMNS[-1] / max(1, d - 1))
    columns, logs = torch.tensor(COLUMNS, dtype=torch.float32), torch.tensor(points)
    right = torch.searchsorted(columns, at).clamp(1, len(COLUMNS) - 1)
    part = (at - columns[right - 1]) / (columns[right] - columns[right - 1])
    share = 10 ** torch.lerp(logs[right - 1], logs[right], part)
    return share / share.sum()


def trained_keys(sizes: Sizes, N: int, device: str = "cuda") -> list[Tensor]:
    """[1, Hkv, N, d] of every layer: heads take the curves in turn, each in axes of its own."""
    generator = torch.Generator(device).manual_seed(0)
    draw = partial(torch.randn, generator=generator, device=device)
    curves = torch.stack([_curve(points, sizes.d) for points in SPECTRA]).to(device)
    keys = []
    for layer in range(sizes.layers):
        turn = (torch.arange(sizes.Hkv, device=device) + layer * sizes.Hkv) % len(SPECTRA)
        axes = torch.linalg.qr(draw(sizes.Hkv, sizes.d, sizes.d))[0]
        spread = draw(sizes.Hkv, N, sizes.d) * curves[turn].sqrt()[:, None]
        mean = torch.nn.functional.normalize(draw(sizes.Hkv, 1, sizes.d), dim=-1) * MEAN**0.5
        keys.append((sizes.d**0.5 * (spread @ axes.mT + mean)).bfloat16()[None])
    return keys


def noise(sizes: Sizes, N: int, device: str = "cuda") -> list[Tensor]:
    """[1, Hkv, N, d] of every layer: the flattest spectrum there is."""
    shape = (1, sizes.Hkv, N, sizes.d)
    return [torch.randn(shape, device=device).bfloat16() for _ in range(sizes.layers)]


def states(sizes: Sizes, keys: Tensor) -> States:
    """A layer's states with these Keys."""
    queries = torch.randn(1, sizes.Hq, WINDOW, sizes.d, device=keys.device).bfloat16()
    lengths = torch.full((1,), keys.shape[2], dtype=torch.int32, device=keys.device)
    return States(keys, lengths, queries, torch.ones(1, WINDOW, device=keys.device).bool())


def rotate(layers: Sequence[States], start: Tensor) -> tuple[Tensor, Tensor]:
    """K~ and R of layers, found as one layer's: the launches of
    `rotatek.methods.channels.rotatek`."""
    keys, lengths, queries, alive = (
        each[0] if len(each) == 1 else torch.cat(each) for each in zip(*layers, strict=True)
    )
    mean, found = covariance(keys, lengths)
    sigma = weigh(queries, keys.shape[1], alive, 1e-3, 1e-19, True)
    basis = subspace(found, start.shape[1], sigma=sigma, start=start)
    return project(keys, mean, basis), basis.to(keys.dtype)


def _each(layers: Sequence[States], start: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [rotate([layer], start) for layer in layers]


def _beside(run: Callable[[], Any], compress: Callable[[], Any]) -> Callable[[], None]:
    """A prefill during which another stream compresses."""

    def both() -> None:
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            held = compress()
        run()
        main.wait_stream(side)
        del held

    return both
