"""Heads of different widths: kernels load several channels at once, and every row is aligned for
it."""

import pytest
import torch

from kernels.attention_launch import attend_triton
from kernels.reference import misaligned
from tests.kernels import check
from tests.kernels.cases import FLAT, WIDTHS, Case, branches, grid, make, widths
from tests.kernels.check import errors, passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_the_checks_own_cases_keep_what_kernels_rely_on() -> None:
    every = {case for case in [*grid(), *branches(), *widths()] if case.pack in FLAT}
    assert {case.d for case in every} == {128, *WIDTHS}
    for case in every:
        visual = make(case, "cpu")[1]
        assert visual is not None and visual.key_widths is not None
        assert not misaligned(visual)
        assert len(visual.key_widths.unique()) > 1


@pytest.mark.parametrize("d", (128, *WIDTHS))
@pytest.mark.parametrize("pack", FLAT)
def test_heads_of_many_widths_at_every_head_width(pack: str, d: int) -> None:
    case = Case(torch.bfloat16, Hkv=3, G=2, d=d, k=d // 2 + 4, N=33, pack=pack, ragged=True)
    gap, plain = errors(case, attend_triton, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


def test_a_case_that_is_not_aligned_is_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    visual = make(Case(torch.bfloat16, pack="flat"), "cpu")[1]
    assert visual is not None and visual.key_offsets is not None
    slipped = visual._replace(key_offsets=visual.key_offsets + 1)
    monkeypatch.setattr(check, "make", lambda *a: (torch.zeros(1), slipped, None))
    with pytest.raises(ValueError, match="key_offsets"):
        errors(Case(torch.bfloat16, pack="flat"), attend_triton, "cpu")
