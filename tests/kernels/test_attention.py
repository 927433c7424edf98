"""Decode attention against float64, over a representative part of the hardware grid."""

from typing import Any

import pytest
import torch

from kernels.attention_launch import attend_rows, attend_triton
from kernels.dispatch import Dispatcher
from kernels.plan import Config, Single, Work, one_tile, plan_of, plan_splits
from kernels.planes import samples
from kernels.reference import Text, Unsupported, Visual, attend_reference, heads_as_samples
from kernels.samples import sample, sample_planes
from tests.kernels.cases import PACKS, Case, attend_plain, make
from tests.kernels.check import errors, passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16

SHAPES = [
    Case(F32, N=1, M=1, k=8, G=1),
    Case(F32, N=17, M=7, k=48, G=7, ragged=True),
    Case(F32, N=65, M=200, k=128, G=8, strided=True),
    Case(F32, N=0, M=7),
    Case(F32, N=300, k=80, G=4, strided=True, ragged=True),
    Case(F32, N=64, d=80, k=24, G=2),
    Case(F16, N=15, M=7, k=32, G=4),
    Case(F16, N=63, M=200, k=24, G=7),
    Case(BF16, N=16, M=1, k=16, G=8),
    Case(BF16, N=864, M=40, k=32, G=4, B=1, ragged=True),
    Case(BF16, N=17, M=7, k=48, G=7, strided=True),
    Case(BF16, N=0, M=200, G=7, ragged=True),
    Case(BF16, N=65, M=7, k=64, d=64),
    Case(F16, N=33, M=7, k=24, d=96, G=4, ragged=True),
    Case(BF16, N=40, M=17, k=64, d=256, G=2, strided=True),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_error_is_at_most_twice_plain_pytorch(case: Case) -> None:
    gap, plain = errors(case, attend_triton, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


PACKED = [(pack, BF16 if "8" in pack or pack == "flat" else F32) for pack in PACKS]


@pytest.mark.parametrize("pack, dtype", [*PACKED, ("rotated", BF16)], ids=str)
def test_every_way_to_store_the_cache(pack: str, dtype: torch.dtype) -> None:
    case = Case(dtype, N=50, M=20, k=48, G=4, pack=pack, ragged=True, strided=True)
    gap, plain = errors(case, attend_triton, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


@pytest.mark.parametrize("case", [*SHAPES[:6], Case(F32, pack="flat", ragged=True)], ids=str)
def test_reference_agrees_with_float64(case: Case) -> None:
    gap, _ = errors(case, attend_reference, DEVICE)
    assert gap <= 1e-5


def test_the_split_count_does_not_change_the_answer() -> None:
    case = Case(F32, N=130, M=70, ragged=True)
    q, visual, text = make(case, DEVICE)
    truth = attend_plain(q, visual, text, 0.1, torch.float64)
    for splits, block in ((1, 64), (3, 16), (9, 16)):
        config = Config(block_n=block, block_m=16)
        got = attend_triton(q, visual, text, 0.1, config=config, splits=splits)
        assert float((got - truth).abs().max()) <= 1e-5


def test_huge_and_tiny_scores_stay_finite() -> None:
    q, visual, text = make(Case(F32, N=40, ragged=True), DEVICE)
    for factor in (1e4, 1e-12):
        got = attend_triton(q * factor, visual, text, 1.0)
        truth = attend_plain(q * factor, visual, text, 1.0, torch.float64)
        assert float((got - truth).abs().max()) <= 1e-3


def test_a_row_without_visual_tokens_reads_its_text_only() -> None:
    q, visual, text = make(Case(F32, N=40), DEVICE)
    assert visual is not None
    empty = visual._replace(lengths=torch.tensor([40, 0], dtype=torch.int32, device=DEVICE))
    got = attend_triton(q, empty, text, 0.1)
    alone = attend_triton(q, None, text, 0.1)
    assert torch.allclose(got[1], alone[1], atol=1e-6)
    assert not torch.allclose(got[0], alone[0], atol=1e-3)


def test_heads_of_unequal_length_are_samples_of_their_own() -> None:
    q, visual, text = make(Case(F32, N=40, ragged=True), DEVICE)
    B, Hkv, _, d = text.keys.shape
    lengths = torch.arange(B * Hkv, device=DEVICE, dtype=torch.int32).view(B, Hkv) * 7 % 41
    keys, values = torch.randn(2, B, Hkv, 40, d, device=DEVICE)
    dense = Visual(keys, values, lengths)
    got = attend_triton(*heads_as_samples(q, dense, text), 0.1).view(q.shape)
    truth = attend_reference(q, dense, text, 0.1)
    assert float((got - truth).abs().max()) <= 1e-5
    one = dense._replace(lengths=torch.full_like(lengths, 40))
    assert not torch.allclose(truth, attend_reference(q, one, text, 0.1), atol=1e-3)


def test_quantised_values_of_tiny_scale_keep_their_precision() -> None:
    q, visual, text = make(Case(BF16, N=50, pack="fp8"), DEVICE)
    assert visual is not None and visual.value_top is not None
    small = visual._replace(value_top=visual.value_top * 1e-6)
    text = text._replace(values=text.values * 1e-6)
    got = attend_triton(q, small, text, 0.1)
    truth = attend_plain(q, small, text, 0.1, torch.float64)
    assert float((got - truth).norm() / truth.norm()) <= 5e-3


@pytest.mark.parametrize("groups", [4, 8, 64, 256])
@pytest.mark.parametrize("N, M", [(1, 0), (576, 64), (2880, 1024), (16384, 64)])
def test_plans_cover_every_token_once(groups: int, N: int, M: int) -> None:
    work = Work(groups, N, M, 320, 512)
    plan = plan_of(work, plan_splits(work, 132, Config()), Config())
    assert (plan.visual_splits - 1) * plan.visual_size < N <= plan.visual_splits * plan.visual_size
    assert plan.text_splits * plan.text_size >= M
    assert (plan.text_splits - 1) * plan.text_size < max(M, 1) or M == 0
    assert plan.visual_size % Config().block_n == 0
    assert plan == plan_of(work, plan.visual_splits, Config())


@pytest.mark.parametrize(
    "single, tokens, warps, splits",
    [(Single(), 128, 2, 23), (Single(128, 1, 2), 128, 1, 23), (Single(256, 2), 256, 4, 12)],
)
def test_small_batches_take_single_tiles_where_the_table_says(
    single: Single, tokens: int, warps: int, splits: int
) -> None:
    config = Config(block_n=64, warps=1, single=single)
    found, count = one_tile(config, 90, 8, 2880, 132)
    assert (found.block_n, found.warps, count) == (tokens, warps, splits)
    most = single.per_sm * 132 // (splits + 1)
    assert one_tile(config, 90, most, 2880, 132)[1] == splits
    assert one_tile(config, 90, most + 1, 2880, 132) == (config, None)


def test_single_tiles_are_for_rows_and_architectures_that_have_them() -> None:
    for arch, config in ((90, Config(single=None)), (120, Config())):
        assert one_tile(config, arch, 8, 2880, 132) == (config, None)


def test_text_takes_room_in_theplan_of() -> None:
    """64 groups, 528 slots: eight splits each fit without text, seven beside half a slot of
    text."""
    config = Config(64, 1, 3, per_sm=4, tail=1.0, partials=16)
    works = [Work(64, 16384, M, 160, 512) for M in (64, 0)]
    splits = [plan_of(work, plan_splits(work, 132, config), config) for work in works]
    assert [plan.visual_splits for plan in splits] == [7, 8]


def test_several_query_tokens_are_refused_by_the_kernel() -> None:
    q, visual, text = make(Case(F32), DEVICE)
    with pytest.raises(ValueError, match="more than one query token"):
        attend_triton(q.expand(-1, -1, 2, -1), visual, text, 1.0)


def several(kind: str) -> tuple[torch.Tensor, Visual | None, Text]:
    """Three new tokens of each sample, in bf16: of planes, of one sample's Keys, of text alone."""
    make_sample = sample_planes if kind.startswith("planes") else sample
    case = () if make_sample is sample_planes else (32, None)
    q, visual, text = make_sample(torch.device(DEVICE), BF16, *case)
    noise = torch.Generator().manual_seed(3)
    q = torch.randn(len(q), q.shape[1], 3, q.shape[3], generator=noise).to(q)
    if kind == "text":
        return q, None, text
    if kind == "planes":
        return q, visual, text
    one: dict[str, Any] = {  # the second sample alone
        name: each[1:] if each.dim() > 1 or name == "lengths" else each
        for name, each in visual._asdict().items()
        if isinstance(each, torch.Tensor)
    }
    if visual.key_planes is not None and visual.value_planes is not None:
        rows = torch.tensor([1], device=DEVICE)
        for side in ("key_planes", "value_planes"):
            one[side] = samples(getattr(visual, side), rows)
    assert text.lengths is not None
    return q[1:], visual._replace(**one), Text(text.keys[1:], text.values[1:], text.lengths[1:])


@pytest.mark.parametrize("most", [4096, 2])
@pytest.mark.parametrize("kind", ["planes", "planes of one", "one", "text"])
def test_several_new_tokens_are_rows(monkeypatch: pytest.MonkeyPatch, kind: str, most: int) -> None:
    monkeypatch.setattr("kernels.attention_launch.MOST_ROWS", most)
    q, visual, text = several(kind)
    got = attend_rows(q, visual, text, 0.1)
    want = attend_reference(q, visual, text, 0.1)
    assert got.shape == want.shape
    torch.testing.assert_close(got.float(), want.float(), rtol=2e-2, atol=2e-2)
    first = attend_triton(q[:, :, -1:].contiguous(), visual, text, 0.1)
    torch.testing.assert_close(got[:, :, -1:], first, rtol=0, atol=1e-2)


def test_rows_of_several_samples_need_planes() -> None:
    q, visual, text = sample(torch.device(DEVICE), BF16, 32, None)
    with pytest.raises(Unsupported):
        attend_rows(q.expand(-1, -1, 2, -1), visual, text, 0.1)


def test_dispatcher_uses_the_reference_on_cpu_and_says_so() -> None:
    dispatcher = Dispatcher()
    q, visual, text = make(Case(F32), "cpu")
    got = dispatcher.attend(q, visual, text, 0.1)
    assert torch.equal(got, attend_reference(q, visual, text, 0.1))
    assert dispatcher.status("cpu").backend == "reference"
    assert "No GPU" in dispatcher.self_test("cpu").reason


@pytest.mark.skipif(DEVICE == "cpu", reason="a graph of a GPU")
def test_a_captured_call_follows_growing_text() -> None:
    """Replayed while text grows, it equals fresh calls bit for bit."""
    q, visual, text = make(Case(BF16, N=864, M=64, ragged=True), DEVICE)
    keys, values = (t.nan_to_num(0.0) for t in (text.keys, text.values))
    lengths = torch.tensor([1, 9], dtype=torch.int32, device=DEVICE)
    text = text._replace(keys=keys, values=values, lengths=lengths)
    attend_triton(q, visual, text, 0.1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attend_triton(q, visual, text, 0.1)
    for _ in range(40):
        lengths += 1
        q.normal_()
        graph.replay()
        assert torch.equal(out, attend_triton(q, visual, text, 0.1))
