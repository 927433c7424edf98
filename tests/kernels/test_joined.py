"""Splits that read their share of the text too: one writes the output, several are weighed."""

from functools import partial

import pytest
import torch

from kernels.cases import PACKS, Case
from kernels.check import errors, passes
from kernels.launch import attend_triton
from kernels.plan import Config, Joined

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


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_way_to_store_the_cache(case: Case, splits: int) -> None:
    attend = partial(attend_triton, config=JOINED, splits=splits)
    gap, plain = errors(case, attend, DEVICE)
    assert passes(case, gap, plain), (gap, plain)
