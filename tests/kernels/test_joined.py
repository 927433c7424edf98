"""Splits that read their share of the text too: one writes the output, several are weighed."""

from functools import partial

import pytest
import torch

from kernels.attention_launch import attend_triton
from kernels.plan import Config, Joined, Work, joined_us, layout, plan_of
from tests.kernels.cases import PACKS, Case, attend_plain, make
from tests.kernels.check import errors, passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
JOINED = Config(block_n=16, warps=4, stages=2, block_m=16, joined=Joined())
CASES = [
    Case(F32, N=1, M=1, k=8, G=1),
    Case(F32, N=40, M=37, k=48, G=7, ragged=True),
    Case(F32, N=64, d=80, k=24, r=24, G=2, M=0, pack="values"),
    Case(F16, N=65, M=7, k=24, G=7, strided=True),
    Case(BF16, N=48, M=40, k=64, d=64, ragged=True),
    Case(BF16, N=33, M=20, k=16, r=16, pack="values"),
    *(
        Case(BF16 if "8" in pack or pack == "flat" else F32,
             N=50, M=20, k=48, pack=pack, ragged=True, strided=True)
        for pack in PACKS
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    "groups, N, ragged, splits",
    [
        (8, 2880, False, 0), (64, 2880, False, 0), (64, 16384, False, 0), (512, 2880, False, 1),
        (128, 2880, False, 2), (256, 2880, False, 1), (256, 16384, False, 1),
        (256, 576, True, 1), (256, 2880, True, 2), (256, 16384, True, 4), (8, 2880, True, 0),
    ],
)  # fmt: skip
def test_batches_that_fill_the_gpu_read_text_in_the_same_programs(
    groups: int, N: int, ragged: bool, splits: int
) -> None:
    """bf16 at k = 32 on an H200; 0: text splits beside visual ones, as before."""
    work = Work(groups, N, 64, 320, 512, ragged=ragged)
    config, plan = layout(work, (90, 132))
    assert bool(config.joined) == (splits > 0)
    assert plan.visual_splits == splits or not splits
    assert bool(plan.text_splits) == (not splits)


@pytest.mark.parametrize("arch", [80, 100, 120])
def test_other_architectures_keep_the_layout_they_had(arch: int) -> None:
    config, plan = layout(Work(256, 2880, 64, 320, 512), (arch, 132))
    assert config.joined is None and plan.text_splits > 0


@pytest.mark.parametrize("groups, N, M", [(64, 130, 70), (4, 300, 0), (256, 1, 1), (8, 64, 1024)])
@pytest.mark.parametrize("wanted", [1, 3, 9])
def test_joined_plans_cover_every_token_once(groups: int, N: int, M: int, wanted: int) -> None:
    plan = plan_of(Work(groups, N, M, 320, 512), wanted, JOINED)
    assert plan.text_splits == 0
    assert (plan.visual_splits - 1) * plan.visual_size < N <= plan.visual_splits * plan.visual_size
    assert plan.visual_splits * plan.text_size >= M
    assert joined_us(Work(groups, N, M, 320, 512), 132, JOINED, plan.visual_splits) > 0


def test_float32_keeps_text_splits_of_its_own() -> None:
    """Rows of 320 bytes, as bf16 at k = 32."""
    config, _ = layout(Work(256, 2880, 64, 320, 1024), (90, 132))
    assert config.joined is None


def test_a_row_without_visual_tokens_or_with_little_text_is_right() -> None:
    q, visual, text = make(Case(F32, B=3, N=40, M=37), DEVICE)
    ends = (
        torch.tensor(rows, dtype=torch.int32, device=DEVICE) for rows in ([40, 0, 9], [1, 37, 5])
    )
    assert visual is not None
    visual, text = visual._replace(lengths=next(ends)), text._replace(lengths=next(ends))
    truth = attend_plain(q, visual, text, 0.1, torch.float64)
    for splits in (1, 2, 3):
        got = attend_triton(q, visual, text, 0.1, config=JOINED, splits=splits)
        assert float((got - truth).abs().max()) <= 1e-5


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_way_to_store_the_cache(case: Case, splits: int) -> None:
    attend = partial(attend_triton, config=JOINED, splits=splits)
    gap, plain = errors(case, attend, DEVICE)
    assert passes(case, gap, plain), (gap, plain)
