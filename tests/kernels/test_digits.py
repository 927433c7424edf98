"""Attention over planes of 2-bit digits, in the interpreter where there is no GPU."""

from functools import partial

import pytest
import torch

from kernels.attention_launch import attend_triton, refusal
from kernels.packed_attention_launch import (
    WIDEST,
    PlanesConfig,
    PlanesWork,
    attend_planes,
    blocks,
    choose,
    plan_planes,
    slots_for,
)
from tests.kernels.cases import PLANES, Case, attend_plain, grid, make
from tests.kernels.check import errors, passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F16, BF16 = torch.float16, torch.bfloat16
CASES = [
    Case(BF16, B=2, G=4, N=200, k=48, pack="planes", ragged=True, strided=True),
    Case(BF16, B=3, Hkv=1, G=7, N=129, M=40, k=80, d=80, pack="planes"),
    Case(F16, B=1, G=8, N=128, M=1, k=16, d=64, pack="planes, whole rows"),
    Case(F16, B=1, G=1, N=17, k=32, d=64, pack="planes"),
    Case(BF16, B=1, Hkv=3, G=2, N=150, k=48, d=96, pack="planes, whole rows"),
    Case(BF16, B=3, G=4, N=200, k=48, d=64, pack="planes, shared", ragged=True),
    Case(F16, B=2, Hkv=1, G=2, N=129, k=32, d=80, pack="planes, shared"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_layout_of_a_gpu_is_right(case: Case) -> None:
    gap, plain = errors(case, attend_triton, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("tiles, splits", [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_every_split_of_tiles_and_text(tiles: int, splits: int, apart: bool) -> None:
    """Rows of 400, 200 and no tokens: a split may have whole tiles, a part of one, or nothing."""
    case = Case(BF16, B=3, Hkv=1, G=4, N=400, M=70, k=32, d=64, pack="planes", ragged=True)
    attend = partial(attend_planes, config=PlanesConfig(tiles, apart), splits=splits)
    gap, plain = errors(case, attend, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


def test_tables_may_be_views_that_requests_share() -> None:
    """Two requests that share counts, rows and steps, as calibrated bases do."""
    q, visual, text = make(Case(F16, B=2, N=140, k=32, d=64, pack="planes"), DEVICE)
    assert visual is not None and visual.key_planes and visual.value_planes
    sides = []
    for planes in (visual.key_planes, visual.value_planes):
        first = planes._replace(
            counts=planes.counts[:1].expand(2, -1, -1),
            starts=planes.starts[:1].expand(2, -1),
            offsets=planes.offsets[:1].expand(2, -1),
        )
        sides.append(first)
    visual = visual._replace(key_planes=sides[0], value_planes=sides[1])
    got = attend_triton(q, visual, text, 0.1)
    truth = attend_plain(q, visual, text, 0.1, torch.float64)
    assert float((got - truth).abs().max()) < 5e-3


def test_flat_attention_keeps_its_small_outputs() -> None:
    """Every token weighs about the same: outputs are far smaller than the digits' offset."""
    q, visual, text = make(Case(F16, B=1, Hkv=1, N=4000, M=1, k=16, pack="planes"), DEVICE, 3)
    assert visual is not None and visual.value_mean is not None
    visual = visual._replace(value_mean=torch.zeros_like(visual.value_mean), mean=None)
    q = q / 1000
    truth = attend_plain(q, visual, text, 1.0, torch.float64)
    got = attend_triton(q, visual, text, 1.0)
    assert float((got - truth).norm() / truth.norm()) < 2e-3


def test_the_grid_has_every_granule_count_and_group() -> None:
    cases = [case for case in grid() if case.pack in PLANES]
    assert {case.G for case in cases} >= {1, 4, 7, 8}
    assert {case.d for case in cases} >= {64, 80, 96, 128, 256}
    assert {case.dtype for case in cases} == {F16, BF16}
    widest = set()
    for case in {(c.k, c.B, c.pack): c for c in cases if c.N < 200}.values():
        _, visual, _ = make(case, "cpu")
        assert visual is not None and visual.key_planes and visual.value_planes
        widest |= {visual.key_planes.widest, visual.value_planes.widest}
    assert len(widest) >= 5


def test_what_the_kernel_cannot_read_goes_to_the_reference() -> None:
    q, visual, text = make(Case(BF16, k=16, pack="planes"), "cpu")
    assert refusal(q, visual, text) is None
    assert visual is not None and visual.key_planes is not None
    wide = visual._replace(key_planes=visual.key_planes._replace(widest=WIDEST + 1))
    assert refusal(q, wide, text)
    text = text._replace(keys=text.keys.float(), values=text.values.float())
    assert "float32" in (refusal(q.float(), visual, text) or "")


@pytest.mark.parametrize("widest", range(WIDEST + 1))
def test_a_kernel_has_room_for_every_granule(widest: int) -> None:
    assert widest <= slots_for(widest) < max(4, 2 * widest)
    assert slots_for(widest) <= slots_for(widest, WIDEST // 2) >= WIDEST // 4
    for size in (found := blocks(slots_for(widest))):
        assert size & (size - 1) == 0
    assert sum(found) == slots_for(widest)


def test_few_kernels_serve_all_mixtures() -> None:
    each = range(WIDEST + 1)
    assert len({(slots_for(k, v), slots_for(v, k)) for k in each for v in each}) <= 11


@pytest.mark.parametrize("rows", [4, 8, 64, 256, 2048])
@pytest.mark.parametrize("N", [1, 280, 2880, 16384])
@pytest.mark.parametrize("M", [1, 64, 3000])
def test_a_plan_reads_everything_and_fits(rows: int, N: int, M: int) -> None:
    work = PlanesWork(rows, N, M)
    config = choose(work, 132)
    plan = plan_planes(work, 132, config)
    assert 1 <= plan.spread <= -(-N // 128)
    assert plan.splits * plan.text_size >= M
    assert plan.splits == plan.spread or config.apart
    assert rows * plan.spread <= 8 * 132 or plan.spread == 1
