"""Decode attention against float64: one matrix over form, heads, tokens, widths, types, strides.

On a GPU all of the grid compiles and runs; Triton's interpreter takes a representative part.
"""

from functools import partial
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.cache_utils import DynamicCache

from kernels import attention_launch, packed_attention_launch
from kernels.attention_launch import attend_rows, attend_triton
from kernels.packed_attention_launch import WIDEST, PlanesConfig, attend_packed, partials_of
from kernels.plan import Config, Joined
from kernels.reference import Packed, Text, Unsupported, Visual, attend_reference
from kernels.samples import sample, sample_packed
from rotatek import RotateKCache, Settings, make_request
from rotatek.engine.batch import RunningBatch
from rotatek.engine.passes import prefill
from rotatek.engine.sequences import Sequence
from rotatek.models import VisionLanguageModel
from tests.kernels.cases import PACKS, Case, attend_plain, check, grid, make, misaligned
from tests.tiny import tiny_qwen

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
H200 = (90, 132)  # architecture, multiprocessors
APART = Config(block_n=16, block_m=16)
JOINED = Config(block_n=16, warps=4, stages=2, block_m=16, joined=Joined())
LARGE_TILES = Config(256, 4, stages=2)

SHAPES = [
    Case(F32, N=1, M=1, k=8, G=1),
    Case(F32, N=17, M=7, k=48, G=7, ragged=True),
    Case(F32, N=65, M=200, k=128, G=8, strided=True),
    Case(F32, N=0, M=7),
    Case(F32, N=64, d=80, k=24, G=2),
    Case(F16, N=15, M=7, k=32, G=4),
    Case(F16, N=33, M=7, k=24, d=96, G=4, ragged=True),
    Case(BF16, N=864, M=40, k=32, G=4, B=1, Hkv=1, ragged=True),
    Case(BF16, N=17, M=7, k=48, G=7, strided=True),
    Case(BF16, N=0, M=200, G=7, ragged=True),
    Case(BF16, N=40, M=17, k=64, d=256, G=2, strided=True),
    *(Case(F32, N=50, M=20, k=48, pack=each, ragged=True, strided=True) for each in PACKS),
    *(Case(BF16, Hkv=1, G=7, d=64, k=16, N=65, M=20, pack=each, ragged=True) for each in PACKS),
    Case(BF16, B=2, G=4, N=200, k=48, pack="planes", ragged=True, strided=True),
    Case(BF16, B=3, Hkv=1, G=7, N=129, M=40, k=80, d=80, pack="planes"),
    Case(F16, B=1, G=8, N=128, M=1, k=16, d=64, pack="planes"),
]  # fmt: skip
CASES = [*SHAPES, *(grid() if ON_GPU else ())]
WAYS: list[tuple[Config, int]] = [
    (APART, 1), (APART, 3), (APART, 9), (JOINED, 1), (JOINED, 3), (LARGE_TILES, 1)
]  # fmt: skip


def attend(q: Any, visual: Visual | None, text: Text, scale: float, **how: Any) -> Any:
    """By the kernel of the form."""
    if isinstance(visual, Packed):
        return attend_packed(q, visual, text, scale, **how)
    return attend_triton(q, visual, text, scale, **how)


@pytest.mark.parametrize("seed", range(len(CASES)), ids=lambda seed: str(CASES[seed]))
def test_error_is_at_most_twice_plain_pytorch(seed: int) -> None:
    check(CASES[seed], attend, DEVICE, seed)


@pytest.mark.parametrize("config, splits", WAYS, ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case(F32, B=3, Hkv=1, N=130, M=37, k=48, G=7, ragged=True),
        Case(BF16, B=1, Hkv=2, N=40, M=7, k=24, d=80, strided=True),
        Case(F16, N=50, M=20, pack="index", ragged=True),
    ],
    ids=str,
)
def test_no_layout_changes_the_answer(case: Case, config: Config, splits: int) -> None:
    """Text apart or read by the same programs; one split, which writes the output, or several."""
    check(case, partial(attend, config=config, splits=splits), DEVICE)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("tiles, splits", [(1, 1), (1, 2), (2, 3)])
def test_every_split_of_tiles_and_text(tiles: int, splits: int, apart: bool) -> None:
    """Rows of 400, 200 and no tokens: a split may have whole tiles, a part of one, or nothing."""
    case = Case(BF16, B=3, Hkv=1, G=4, N=400, M=70, k=32, d=64, pack="planes", ragged=True)
    how: dict[str, Any] = {"config": PlanesConfig(tiles, apart), "splits": splits}
    check(case, partial(attend, **how), DEVICE)


@pytest.mark.parametrize("case", [*SHAPES[:7], *SHAPES[-3:]], ids=str)
def test_reference_agrees_with_float64(case: Case) -> None:
    check(case, attend_reference, DEVICE)


def test_huge_and_tiny_scores_stay_finite() -> None:
    q, visual, text = make(Case(F32, N=40, ragged=True), DEVICE)
    for factor in (1e4, 1e-12):
        got = attend(q * factor, visual, text, 1.0)
        truth = attend_plain(q * factor, visual, text, 1.0, torch.float64)
        assert float((got - truth).abs().max()) <= 1e-3


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of memory that is not read
def test_a_row_without_visual_tokens_reads_its_text_only() -> None:
    q, visual, text = make(Case(F32, N=40), DEVICE)
    assert visual is not None
    empty = visual._replace(lengths=torch.tensor([40, 0], dtype=torch.int32, device=DEVICE))
    alone = attend_triton(q, None, text, 0.1)
    for config, splits in WAYS[1:4:2]:  # text apart, in three splits, and joined, in one
        got = attend(q, empty, text, 0.1, config=config, splits=splits)
        assert torch.allclose(got[1], alone[1], atol=1e-6)
        assert not torch.allclose(got[0], alone[0], atol=1e-3)


def test_flat_attention_over_digits_keeps_its_small_outputs() -> None:
    """Every token weighs about the same: outputs are far smaller than the digits' offset."""
    q, visual, text = make(Case(F16, B=1, Hkv=1, N=1500, M=1, k=16, pack="planes"), DEVICE, 3)
    assert isinstance(visual, Packed)
    none = torch.zeros_like(visual.mean)
    visual, q = visual._replace(value_mean=none, mean=none), q / 1000
    truth = attend_plain(q, visual, text, 1.0, torch.float64)
    got = attend_packed(q, visual, text, 1.0)
    assert float((got - truth).norm() / truth.norm()) < 2e-3


# -- what is launched when ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "visual_tokens, change, early",
    [
        (65, {}, True),
        (65, {"fresh": True}, False),
        (65, {"keys": torch.zeros(2, 2, 32, 65, dtype=BF16).mT}, False),  # copied first
        (0, {}, False),  # text alone: its last token has just been written
    ],
)
def test_nothing_is_read_early_that_was_just_written(
    visual_tokens: int, change: dict[str, Any], early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, merge = MagicMock(), MagicMock()  # in place of kernels
    monkeypatch.setattr(attention_launch, "split_kernel", split)
    monkeypatch.setattr(packed_attention_launch, "merge_kernel", merge)
    monkeypatch.setattr(attention_launch, "device_facts", lambda device: H200)
    q, visual, text = make(Case(BF16, N=visual_tokens), "cpu")
    attend(q, visual if visual is None else visual._replace(**change), text, 0.1)
    first, second = (each.__getitem__.return_value.call_args for each in (split, merge))
    assert first.args[-1].PDL == second.kwargs["PDL"] == early
    assert ("launch_pdl" in first.kwargs) == ("launch_pdl" in second.kwargs) == early


def test_what_no_kernel_reads_is_refused() -> None:
    q, visual, text = sample(torch.device("cpu"), BF16, 32)
    none = visual._replace(keys=visual.keys[..., :0])
    eight = visual._replace(values=visual.values.to(torch.int8))
    for narrow, match in ((none, "no channel"), (eight, "type")):
        with pytest.raises(Unsupported, match=match):
            attend_triton(q, narrow, text, 1.0)
    with pytest.raises(Unsupported, match="without planes"):
        attend_rows(q.expand(-1, -1, 2, -1), visual, text, 1.0)
    q, packed, text = sample_packed(torch.device("cpu"), BF16)
    wide = packed._replace(keys=packed.keys._replace(widest=WIDEST + 1))
    text = text._replace(keys=text.keys.float(), values=text.values.float())
    for given, match in ((wide, "too many bits"), (packed, "float32")):
        with pytest.raises(Unsupported, match=match):
            attend_packed(q.float() if given is packed else q, given, text, 1.0)


def several(kind: str) -> tuple[torch.Tensor, Visual | None, Text]:
    """Three new tokens of each sample, in bf16: of planes, of one sample's Keys, of text alone."""
    made = sample_packed if kind == "planes" else partial(sample, k=32)
    q, visual, text = made(torch.device(DEVICE), BF16)
    noise = torch.Generator().manual_seed(3)
    q = torch.randn(len(q), q.shape[1], 3, q.shape[3], generator=noise).to(q)
    if kind != "one":
        return q, None if kind == "text" else visual, text
    one: dict[str, Any] = {  # the second sample alone
        name: each[1:] for name, each in visual._asdict().items() if isinstance(each, torch.Tensor)
    }
    assert text.lengths is not None
    return q[1:], visual._replace(**one), Text(text.keys[1:], text.values[1:], text.lengths[1:])


@pytest.mark.parametrize("kind, most", [("planes", 4096), ("planes", 2), ("one", 2), ("text", 2)])
def test_several_new_tokens_are_rows(monkeypatch: pytest.MonkeyPatch, kind: str, most: int) -> None:
    """In one launch, or in several where there are too many."""
    monkeypatch.setattr(packed_attention_launch, "MOST_ROWS", most)
    q, visual, text = several(kind)
    if isinstance(visual, Packed):
        got = attend_packed(q, visual, text, 0.1)
    else:
        got = attend_rows(q, visual, text, 0.1)
    want = attend_reference(q, visual, text, 0.1)
    assert got.shape == want.shape
    torch.testing.assert_close(got.float(), want.float(), rtol=2e-2, atol=2e-2)
    first = attend(q[:, :, -1:].contiguous(), visual, text, 0.1)
    torch.testing.assert_close(got[:, :, -1:], first, rtol=0, atol=1e-2)


@pytest.mark.skipif(not ON_GPU, reason="a graph of a GPU")
def test_a_captured_call_follows_growing_text() -> None:
    """Replayed while text grows, it equals fresh calls bit for bit."""
    q, visual, text = make(Case(BF16, N=864, M=64, ragged=True), DEVICE)
    keys, values = (t.nan_to_num(0.0) for t in (text.keys, text.values))
    lengths = torch.tensor([1, 9], dtype=torch.int32, device=DEVICE)
    text = text._replace(keys=keys, values=values, lengths=lengths)
    attend(q, visual, text, 0.1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attend(q, visual, text, 0.1)
    for _ in range(40):
        lengths += 1
        q.normal_()
        graph.replay()
        assert torch.equal(out, attend(q, visual, text, 0.1))


# -- the running batch's pools, read as they lie: a room a row, at addresses that stay ------------


def filled(vlm: VisionLanguageModel, number: int) -> RotateKCache:
    """Of a picture and a question: neighbours differ in size, in text and in spectra."""
    noise = np.random.default_rng(number).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((140 + 28 * (number % 3), 168))
    asked = make_request(image, f"question {number} " * (1 + number % 3), 64)
    embedded = vlm.embed(vlm.prompt(asked))
    cache = RotateKCache(vlm.model, embedded.inputs(), Settings.of(smaller=3))
    prefill(vlm, embedded, cache)
    cache.filling.finish()
    return cache


@torch.inference_mode()
def test_kernels_read_pools_in_place() -> None:
    """Aligned as they rely on, and the same attention as over caches of their own; a row that
    joined where another had left, and rows that are not in use, among them."""
    vlm = tiny_qwen()
    vlm.model.to(DEVICE)
    batch = RunningBatch(DynamicCache(config=vlm.model.config))
    batch.static = True
    alone = [filled(vlm, n) for n in (4, 10, 7)]
    rows = [Sequence(filled(vlm, n), None, 0, 0) for n in (4, 1, 7, 10)]
    batch.join(rows[:3])
    batch.leave(rows[1:2])
    batch.join(rows[3:])
    for layer in (0, 3):
        (slots,) = batch.layers[layer].groups
        visual, text = slots.visual(), slots._text()
        assert visual is not None and not misaligned(visual) and slots.width > len(alone)
        query = torch.randn(slots.width, 14, 1, 32, device=DEVICE)
        want = attend_reference(query, visual, text, 0.2)
        for row, cache in enumerate(alone):
            held = cache.layers[layer]
            own = attend_reference(query[row][None], held.store.read(), held.text.read(), 0.2)
            torch.testing.assert_close(want[row][None], own, atol=1e-4, rtol=1e-4)
        if isinstance(visual, Packed):  # which are not read under float32
            text = text._replace(keys=text.keys.half(), values=text.values.half())
            got = attend_packed(query.half(), visual, text, 0.2).float()
        else:
            got = attend_triton(query, visual, text, 0.2)
        torch.testing.assert_close(got[:3], want[:3], atol=2e-2, rtol=2e-2)


def test_kernels_get_aligned_addresses() -> None:
    """Triton compiles a kernel once more for each that is not."""
    vlm = tiny_qwen()
    batch = RunningBatch(DynamicCache(config=vlm.model.config))
    batch.join([Sequence(filled(vlm, 4), None, 0, 0)])
    groups = [slots for layer in batch.layers for slots in layer.groups]
    given = [each for slots in groups for each in (slots.lengths, slots.visual_lengths)]
    given += partials_of(torch.empty(1, 7, 1, 64), 3)
    assert len(groups) == 4 and all(each.data_ptr() % 16 == 0 for each in given)
