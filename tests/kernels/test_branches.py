"""Branches of the launch by widths and batches: single tiles, sliced merges, late starts."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from kernels import attention_launch
from kernels.attention_launch import _merge_block, attend_triton
from kernels.plan import Config, Work, configuration, layout, one_tile
from kernels.reference import Visual
from kernels.samples import sample
from rotatek.methods.channels.bit_packing import pack
from rotatek.methods.channels.spark import SparKStore
from tests.kernels.cases import WIDTHS, Case, branches, make
from tests.kernels.check import errors, passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16 = torch.bfloat16
H200 = (90, 132)  # architecture, multiprocessors
EIGHT = Case(BF16, B=3, Hkv=1, G=4, N=300, M=7, ragged=True)
TURNED = replace(EIGHT, pack="values")


def path(case: Case) -> tuple[int, int, str]:
    """(kept Key channels, bytes of a token, how its splits are laid) on an H200."""
    row = {"fp8": case.k + case.d, "int8": case.k + case.d, "fp8 values": 2 * case.k + case.d}
    row["dense"] = 4 * case.d
    row_bytes = row.get(case.pack, 2 * (case.k + (case.r or case.d)))
    groups = case.B * case.Hkv
    k = case.d if case.pack == "dense" else case.k
    found = configuration(H200[0], case.d, k, row_bytes)
    config, splits = one_tile(found, H200[0], groups, case.N, H200[1])
    if splits is None:
        work = Work(groups, case.N, case.M, row_bytes, 4 * case.d, case.d, k)
        config, plan = layout(work, H200)
        several = "one" if plan.splits == 1 else "several"
        return case.k, row_bytes, f"joined, {several}" if config.joined else "planned"
    alone = groups * (splits + 1) <= H200[1]
    return case.k, row_bytes, f"{config.block_n}, {'alone' if alone else 'shared'}"


def test_the_branches_have_every_path() -> None:
    for ragged in (True, False):
        seen = {path(case) for case in branches() if case.ragged == ragged or "8" in case.pack}
        rows = ((32, 160), (32, 192))
        assert {(*row, f"256, {how}") for row in rows for how in ("alone", "shared")} <= seen
        assert {(*row, "planned") for row in rows} <= seen
    seen = {path(case) for case in branches()}
    for row in ((32, 128), (16, 64)):
        assert {(*row, how) for how in ("256, alone", "256, shared", "planned")} <= seen
    for row in ((32, 320), (48, 352), (128, 512), (32, 160), (32, 192), (32, 128)):
        assert {(*row, f"joined, {how}") for how in ("one", "several")} & seen, row
    assert {how for *_, how in seen} >= {"joined, one", "joined, several"}
    assert any(
        case.r == 16 and case.B * case.Hkv * case.G > attention_launch.SLICED for case in branches()
    )


@pytest.mark.parametrize("N", [1, 300])
@pytest.mark.parametrize(
    "case",
    [*(replace(EIGHT, pack=pack) for pack in ("fp8", "int8", "fp8 values")),
     replace(TURNED, r=32), replace(TURNED, k=16, r=16)],
    ids=lambda case: f"{case.pack} {case.r}",
)  # fmt: skip
def test_single_tiles_of_256_tokens_are_right(case: Case, N: int) -> None:
    """Rows of N, N / 2 and no tokens."""
    attend = partial(attend_triton, config=Config(256, 4, stages=2), splits=-(-N // 256))
    gap, plain = errors(replace(case, N=N), attend, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


@pytest.mark.parametrize(
    "case",
    [replace(TURNED, d=80, k=24, r=16, N=50), replace(TURNED, k=16, r=16, N=40, pack="flat")],
    ids=["width 80", "widths of their own"],
)  # fmt: skip
def test_sliced_merges_of_16_value_channels_are_right(case: Case) -> None:
    """Several splits, text among them, and a row that reads text only."""
    assert _merge_block(case.d, 16, 4096) == 32
    attend = partial(attend_triton, config=Config(16, 4, block_m=16), splits=3)
    gap, plain = errors(case, attend, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


def test_merges_are_sliced_for_few_heads_or_narrow_values() -> None:
    assert [_merge_block(128, rank, 4096) for rank in (None, 16, 24, 128)] == [128, 32, 128, 128]
    assert [_merge_block(128, rank, 8) for rank in (None, 16, 24)] == [32, 32, 128]
    assert _merge_block(16, 16, 8) == 16


class Launches:
    """Replaces a kernel: records whether it may start before the previous one has ended."""

    def __init__(self) -> None:
        self.early: list[bool] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.early.append(
            bool(kwargs["PDL"]) and kwargs.get("launch_pdl", False)
        )


@pytest.mark.parametrize(
    "pack, change, early",
    [
        ("rotated", {}, True),
        ("fp8", {}, True),
        ("flat", {}, True),
        ("rotated", {"fresh": True}, False),
        ("fp8", {"value_top": None}, False),  # its tops are taken from the scales at once
        ("rotated", {"keys": torch.zeros(2, 2, 32, 65, dtype=BF16).mT}, False),  # copied first
        (None, {}, False),  # text alone: its last token has just been written
    ],
)
def test_nothing_is_read_early_that_was_just_written(
    pack: str | None, change: dict[str, Any], early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [Launches(), Launches()]
    for name, kernel in zip(("split_kernel", "merge_kernel"), kernels, strict=True):
        monkeypatch.setattr(attention_launch, name, kernel)
    monkeypatch.setattr(attention_launch, "device_facts", lambda device: H200)
    q, visual, text = make(Case(BF16, pack=pack or "rotated", N=65 if pack else 0), "cpu")
    visual = None if visual is None else visual._replace(**change)
    attend_triton(q, visual, text, 0.1)
    assert [kernel.early for kernel in kernels] == [[early]] * 2


def test_keys_that_are_rebuilt_at_every_step_are_not_read_early() -> None:
    kept = torch.arange(128) < 8
    visual = Visual(torch.ones(1, 1, 2, 8), torch.ones(1, 1, 2, 128))
    mask, level = pack(kept.expand(1, 1, 2, 128), 1), torch.zeros(1, 1, 2)
    found = SparKStore(visual, mask, level, None, None).read()
    assert found.fresh
    assert found.keys.equal(kept.float().expand(1, 1, 2, 128))


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("pack", ["rotated", "values", "int8"])
def test_other_head_widths(d: int, pack: str) -> None:
    case = Case(BF16, Hkv=1, G=7, d=d, k=d // 4, N=65, M=20, pack=pack, ragged=True)
    gap, plain = errors(case, attend_triton, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


def test_gpus_without_8_bit_floats_leave_such_caches_to_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for arch, refused in ((80, True), (86, True), (89, False), (90, False)):
        monkeypatch.setattr(attention_launch, "device_facts", lambda device, arch=arch: (arch, 100))
        for stored in ("fp8", "int8", "rotated"):
            q, visual, text = make(replace(EIGHT, pack=stored), "cpu")
            assert bool(attention_launch.refusal(q, visual, text)) == (refused and stored == "fp8")


def test_a_cache_without_a_channel_is_refused_and_one_with_planes_is_not() -> None:
    q, visual, text = sample(torch.device("cpu"), torch.float32, 32, None)
    assert attention_launch.refusal(q, visual, text) is None
    assert visual.basis is not None
    none = visual._replace(keys=visual.keys[..., :0], basis=visual.basis[..., :0])
    assert "channel" in (attention_launch.refusal(q, none, text) or "")
