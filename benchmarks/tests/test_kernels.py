"""The benchmarks' own parts: the decoder step, the paper's loop, the table."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.kernels import compare, planes, prefill, rebuilt, step, tune
from benchmarks.kernels.arms import PACKS, Shape
from benchmarks.kernels.cases import FP8
from benchmarks.kernels.linear import TILES, Tile, overlaps, streamed
from benchmarks.kernels.model import LLAMA, QWEN, ROPE_BASE, Cache, Decoder, Sizes
from benchmarks.timing import Timing, layers_for
from kernels.reference import Visual, attend_reference
from kernels.solver import start_basis

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TINY = Sizes("tiny", hidden=64, inner=96, layers=2, Hq=4, Hkv=2, vocabulary=50, d=16)


def rotate(x: Tensor, position: int) -> Tensor:
    """Rotary embedding of [heads, d] at one position, halves convention."""
    half = x.shape[-1] // 2
    angle = position * ROPE_BASE ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


@pytest.mark.parametrize("rows, outputs, tile", [(1, 40, Tile(16, 32, 1, 2)), (9, 64, TILES[0])])
def test_streamed_products_are_pytorchs(rows: int, outputs: int, tile: Tile) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(n, 512, generator=generator).bfloat16() for n in (rows, outputs))
    got = streamed(x.to(DEVICE), weight.to(DEVICE), tile).cpu().double()
    want = x.double() @ weight.double().T
    assert got.shape == want.shape
    assert float((got - want).norm() / want.norm()) <= 4e-3


@pytest.mark.parametrize("tiles", [{}, {(1, 64, 96): Tile(16, 32, 1, 2)}], ids=["cuBLAS", "one"])
@pytest.mark.parametrize("early", [False, True])
def test_the_timed_step_is_a_real_decoder_step(
    tiles: dict[tuple[int, int, int], Tile], early: bool
) -> None:
    if early and not overlaps(torch.device(DEVICE)):
        pytest.skip("no kernel starts early here")
    decoder, N = Decoder(TINY, device=DEVICE, tiles=tiles), 20
    decoder.pdl = early
    caches = decoder.caches(1, N, 8, TINY.d)
    got = decoder.step(torch.tensor([7], device=DEVICE), caches).float().cpu()
    s, length = TINY, 4
    x = decoder.embedding[7].float().cpu()
    for layer, cache in enumerate(caches):
        qkv = decoder.qkv[layer].float().cpu() @ F.rms_norm(x, (s.hidden,), eps=1e-6)
        q, k, v = qkv.view(-1, s.d).split([s.Hq, s.Hkv, s.Hkv])
        q, k = rotate(q, N + length - 1), rotate(k, N + length - 1)
        text = [t[0, :, : length - 1].float().cpu() for t in cache.text[:2]]
        seen = [t[0].float().cpu() for t in cache.visual[:2]]
        keys = torch.cat([seen[0], text[0], k[:, None]], 1).repeat_interleave(2, 0)
        values = torch.cat([seen[1], text[1], v[:, None]], 1).repeat_interleave(2, 0)
        mixed = F.scaled_dot_product_attention(q[:, None], keys, values).flatten()
        x = x + decoder.out[layer].float().cpu() @ mixed
        both = decoder.gate_up[layer].float().cpu() @ F.rms_norm(x, (s.hidden,), eps=1e-6)
        gate, up = both.chunk(2)
        x = x + decoder.down[layer].float().cpu() @ (F.silu(gate) * up)
    want = decoder.head.float().cpu() @ F.rms_norm(x, (s.hidden,), eps=1e-6)
    assert float((got[0] - want).norm() / want.norm()) <= 3e-2
    assert int(got[0].argmax()) == int(want.argmax())


def test_kernels_of_a_step_start_early_where_that_was_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.kernels.model.overlaps", lambda device: True)
    decoder = Decoder(TINY, device=DEVICE)
    found = {}
    for sizes in (LLAMA, QWEN):
        decoder.sizes = sizes
        found[sizes.name] = [decoder.overlaps(rows) for rows in (1, 8)]
    assert found == {"Llama3-8B": [True, False], "Qwen2.5-VL-7B": [False, False]}
    decoder.pdl = True
    assert decoder.overlaps(8)


def test_trained_keys_have_the_spectra_they_are_said_to_have() -> None:
    sizes, N = replace(TINY, Hkv=3, d=64), 4000
    for keys in prefill.trained_keys(sizes, N, DEVICE):
        centred = (keys - keys.float().mean(2, keepdim=True)).double()[0]
        mean = keys.double()[0].mean(1)
        values = torch.linalg.eigvalsh(centred.mT @ centred).flip(-1).cpu()
        length = mean.square().sum(-1).cpu() * N / values.sum(-1)
        assert ((length / prefill.MEAN - 1).abs() <= 0.1).all()
        for share, points in zip(
            values / values.sum(-1, keepdim=True), prefill.SPECTRA, strict=True
        ):
            want = prefill._curve(points, 64).double()
            assert ((share / want).log2().abs() <= 0.4).all()


def test_layers_together_are_rotated_as_one_by_one() -> None:
    sizes = replace(TINY, layers=3)
    layers = [prefill.states(sizes, keys) for keys in prefill.trained_keys(sizes, 70, DEVICE)]
    start = start_basis(sizes.d, 4, torch.device(DEVICE))
    together, bases = prefill.rotate(layers, start)
    apart = [prefill.rotate([layer], start) for layer in layers]
    for got, want in ((together, 0), (bases, 1)):
        one_by_one = torch.cat([pair[want] for pair in apart])
        assert got.shape == one_by_one.shape
        assert float((got - one_by_one).float().norm() / one_by_one.float().norm()) <= 1e-2


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("pack", PACKS)
def test_candidates_have_names_of_their_own(pack: str, joined: bool) -> None:
    configs = tune.candidates(replace(Shape(), **PACKS[pack]), joined)
    assert len({tune.name_of(config) for config in configs}) == len(configs) >= 5
    assert all(config.joined is not None for config in configs) == joined


def test_bytes_of_a_shape_are_the_designs() -> None:
    per_token = [Shape(B=1, Hkv=1, Hq=1, N=1, M=0, k=k).cache_bytes for k in (128, 64, 48, 32)]
    assert per_token == [512, 384, 352, 320]
    assert Shape(B=1, Hkv=1, Hq=1, N=1, M=0, k=32, r=32).cache_bytes == 128
    assert Shape(B=1, Hkv=1, Hq=1, N=1, M=0, keys=FP8, values=FP8).cache_bytes == 162


def test_small_layers_are_repeated_until_the_l2_is_cold() -> None:
    assert layers_for(1 << 20) * (1 << 20) >= 3 * (60 << 20)
    assert layers_for(1 << 30) == 4


def test_a_table_prints_every_number_that_was_measured() -> None:
    timing = {"us": 4.25, "low_us": 4.0, "high_us": 4.5}
    row = {"shape": {"Hq": 32, "N": 2880}, "times": {"ours": timing}, "over_paper": 3.5}
    solver = {"matrices": 256, "ms": {"ours k=32": 0.15}, "spectra": {"misses": {"32": ["x"]}}}
    found = {
        "hardware": "a GPU",
        "attention": {"read_bytes_per_s": 4e12, "rows": [row], "refused": ["shape: cudnn: no"]},
        "capacity": {"rows": [{"model": "m", "N": 5, "batch": {"dense": 2}, "gain": 1.5}]},
        "solver": solver,
    }  # fmt: skip
    lines = compare.table(found).splitlines()
    assert [line for line in lines if line.startswith("|")][2:] == [
        "| attention | Hq=32 N=2880 | times, ours, us | 4.25 |",
        "| attention | Hq=32 N=2880 | over_paper | 3.5 |",
        "| capacity | model=m N=5 | batch, dense | 2 |",
        "| capacity | model=m N=5 | gain | 1.5 |",
        "| solver | matrices=256 | ms, ours k=32 | 0.15 |",
    ]
    assert lines[-1] == "Refused: shape: cudnn: no" and "a GPU" in lines[0]


def test_capacity_runs_every_arm_in_as_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own way at a tiny model, the timing left out: batches and real steps."""
    seen: list[tuple[int, int]] = []

    def timed(decoder: Decoder, token: Tensor, caches: list[Cache]) -> tuple[Tensor, Tensor]:
        logits = decoder.step(token, caches)
        assert logits.shape == (len(token), TINY.vocabulary) and bool(logits.isfinite().all())
        seen.append((len(token), step.held(caches)))
        return logits, logits

    monkeypatch.setattr(step, "captured_step", timed)
    took = Timing(100.0, 90.0, 110.0)
    monkeypatch.setattr(step, "interleaved", lambda graphs, *rest: dict.fromkeys(graphs, took))
    sizes, N = replace(TINY, d=64, layers=1, name="Llama3-8B"), 200
    budget = 2 * step.cache_bytes(sizes, 1, N, sizes.d, step.M)
    found = step.capacity(1, N, budget, (sizes,), DEVICE)
    (row,) = found["rows"]
    assert {rebuilt.THINK, rebuilt.SPARK} <= row["batch"].keys()
    assert list(row["batch"].values()) == [rows for rows, _ in seen]
    assert row["batch"]["dense"] == 2 < row["batch"][step.DIGITS] and row["gain_digits"] > 1
    assert all(weight <= 1.2 * budget for _, weight in seen)  # bases of k = 32 are not counted
    assert seen[-1][1] <= budget


@pytest.mark.parametrize("name", planes.MIXES)
def test_a_mix_has_the_bytes_it_is_called_after(name: str) -> None:
    shape = Shape(8, 4, B=2, N=256)
    _, visual, _ = planes.make(shape, planes.MIXES[name], 0, "cpu")
    assert visual.key_planes is not None and visual.value_planes is not None
    sides = (visual.key_planes, visual.value_planes)
    tokens = shape.B * shape.Hkv * shape.N
    assert sum(side.data.nbytes for side in sides) == int(name.split()[0]) * tokens
    assert all(side.widest * 16 == int(side.counts.sum(-1).max()) for side in sides)


@pytest.mark.parametrize("method", [rebuilt.THINK, rebuilt.SPARK])
def test_rebuilt_keys_are_attended_to_and_their_masks_counted(method: str) -> None:
    sizes = replace(TINY, d=64, layers=1)
    decoder, N, M = Decoder(sizes, device=DEVICE), 40, 8
    (cache,) = rebuilt.rebuilt_caches(decoder, method, 2, N, M)
    dense = cache.recover()
    kept = cache.where if cache.fill is not None else None
    if kept is None:
        kept = torch.zeros(2, sizes.Hkv, sizes.d, dtype=torch.bool, device=DEVICE)
        kept = kept.scatter(-1, cache.where, value=True)[:, :, None].expand_as(dense)
    assert kept.sum(-1).unique().tolist() == [rebuilt.KEPT]
    assert torch.equal(dense[~kept].unique(), dense.new_tensor([0.0 if cache.fill is None else 1]))
    assert cache.join(dense).shape == (2, sizes.Hkv, N + M, sizes.d)
    q = torch.randn(2, sizes.Hq, 1, sizes.d, device=DEVICE).bfloat16()
    got = cache.attend(q, sizes.d**-0.5).float()
    want = attend_reference(q, Visual(dense, cache.visual.values), cache.text, sizes.d**-0.5)
    assert float((got - want.float()).abs().max()) <= 5e-2
    one = step.held(rebuilt.rebuilt_caches(decoder, method, 1, N, M))
    assert one == rebuilt.bytes_of(sizes, method, N, M)
    keys = torch.randn(1, 2, N, sizes.d, device=DEVICE)
    assert rebuilt.compressors(keys, keys[:, :, :4])[method]() is not None
