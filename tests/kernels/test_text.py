"""Text in 8 bits behind a recent window: what is stored, and the kernels that read it in place."""

from functools import partial
from typing import Any

import pytest
import torch

from kernels.append import append_text
from kernels.attention_launch import attend_triton
from kernels.plan import Config, Joined
from kernels.reference import QuantisedText, Text, append_plain, attend_reference, opened_text
from tests.kernels.cases import Case, attend_plain, make
from tests.kernels.check import errors, passes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
APART = Config(block_n=16, block_m=16)
JOINED = Config(block_n=16, warps=4, stages=2, block_m=16, joined=Joined())
CASES = [
    Case(F32, N=40, M=16, past=21, ragged=True),
    Case(F32, N=40, M=16, past=50, d=80, k=24, G=7, B=3, ragged=True, strided=True),
    Case(BF16, N=33, M=32, past=3, k=16, r=16, pack="values"),
    Case(F16, N=33, M=16, past=20, pack="int8", ragged=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_agrees_with_float64(case: Case) -> None:
    gap, plain = errors(case, attend_reference, DEVICE)
    assert gap <= (1e-5 if case.dtype == F32 else plain + 1e-5)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("config", [APART, JOINED], ids=["apart", "joined"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_kernels_read_the_past_in_place(case: Case, config: Config, splits: int) -> None:
    gap, plain = errors(case, partial(attend_triton, config=config, splits=splits), DEVICE)
    assert passes(case, gap, plain), (gap, plain)


@pytest.mark.parametrize(
    "case",
    [
        Case(F16, N=129, M=16, past=70, k=48, pack="planes", ragged=True, B=3),
        Case(BF16, N=40, M=32, past=1, k=16, pack="planes"),
        Case(F32, N=0, M=16, past=40, ragged=True, G=7),
        Case(BF16, N=0, M=16, past=5),
    ],
    ids=str,
)
def test_planes_and_text_alone_read_it_too(case: Case) -> None:
    gap, plain = errors(case, attend_triton, DEVICE)
    assert passes(case, gap, plain), (gap, plain)


def test_a_window_that_holds_everything_changes_nothing() -> None:
    q, visual, text = make(Case(F32, N=20, M=24, past=8), DEVICE)
    short = text._replace(lengths=torch.tensor([24, 3], dtype=torch.int32, device=DEVICE))
    plain = Text(text.keys.nan_to_num(), text.values.nan_to_num(), short.lengths)
    got = attend_triton(q, visual, short, 0.1)
    assert torch.equal(attend_reference(q, visual, short, 0.1).isnan(), torch.zeros_like(q).bool())
    assert torch.allclose(got, attend_triton(q, visual, plain, 0.1), atol=1e-6)


def empty(B: int, H: int, recent: int, behind: int, d: int) -> Text:
    ring = torch.zeros(B, H, recent, d)
    data = torch.zeros(B, H, behind, 2, d, dtype=torch.int8)
    scales = torch.zeros(B, H, behind, 2, dtype=torch.bfloat16)
    lengths = torch.zeros(B, dtype=torch.int32)
    return Text(ring, ring.clone(), lengths, QuantisedText(data, scales, torch.ones(B, H, d)))


def by_kernel(text: Text, keys: torch.Tensor, values: torch.Tensor, added: torch.Tensor) -> None:
    """Single tokens by the kernel, as on a GPU."""
    (append_text if keys.shape[2] == 1 else append_plain)(text, keys, values, added)


@pytest.mark.parametrize("append", [append_plain, by_kernel])
@pytest.mark.parametrize(
    "pieces", [[40], [1] * 40, [3, 1, 20, 1, 15], [17, 23], [20, *[2, 1] * 6, 2]]
)
def test_tokens_are_where_they_belong_however_they_came(pieces: list[int], append: Any) -> None:
    """Rows of 40 and of about 20 tokens: the newest 16 exact, the others within half a step."""
    keys, values = torch.randn(2, 2, 3, 40, 8).unbind(0)
    text, start = empty(2, 3, 16, 26, 8), 0
    ends = text.lengths
    taken: list[list[int]] = [[], []]
    assert ends is not None
    for piece in pieces:
        added = torch.tensor([piece, piece // 2])
        now = slice(start, start + piece)
        append(text, keys[:, :, now], values[:, :, now], added)
        for row in (0, 1):
            taken[row] += range(start, start + int(added[row]))
        ends += added
        start += piece
    found_keys, found_values, place = opened_text(text)
    for row in (0, 1):
        there = sorted(at for at in place[row].tolist() if at >= 0)
        assert there == list(range(len(taken[row]))) and len(there) == ends[row]
        for slot, at in enumerate(place[row].tolist()):
            if at < 0:
                assert not found_values[row, :, slot].any()
                continue
            for found, each in ((found_keys, keys), (found_values, values)):
                wanted = each[row, :, taken[row][at]]
                step = wanted.abs().amax(-1, keepdim=True) / 127 if at < ends[row] - 16 else 1e-30
                most = 0.505 if append is append_plain else 1.1  # the interpreter cuts bfloat16 off
                assert bool(((found[row, :, slot] - wanted).abs() <= most * step).all())


def test_a_step_that_is_taken_back_and_made_again_leaves_the_same() -> None:
    keys, values = torch.randn(2, 1, 2, 60, 8).unbind(0)
    once, twice = empty(1, 2, 16, 50, 8), empty(1, 2, 16, 50, 8)
    one, wrong = torch.ones(1, dtype=torch.int32), torch.full((1, 2, 1, 8), 9.0)
    for at in range(60):
        append_plain(twice, wrong, wrong, one)  # and its length is not counted
        for text in (once, twice):
            append_plain(text, keys[:, :, at : at + 1], values[:, :, at : at + 1], one)
            assert text.lengths is not None
            text.lengths.add_(1)
        seen = [opened_text(text) for text in (once, twice)]
        assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_a_row_that_adds_nothing_stays_as_it_is() -> None:
    keys, values = torch.randn(2, 2, 2, 40, 8).unbind(0)
    text = empty(2, 2, 16, 40, 8)
    append_plain(text, keys, values, torch.tensor([40, 30]))
    text = text._replace(lengths=torch.tensor([40, 30], dtype=torch.int32))
    before = opened_text(text)
    append_plain(text, keys[:, :, :5], values[:, :, :5], torch.tensor([0, 5]))
    after = opened_text(text._replace(lengths=torch.tensor([40, 30])))
    assert torch.equal(before[0][0], after[0][0]) and torch.equal(before[2], after[2])


def test_a_question_of_several_tokens_sees_each_only_what_is_before_it() -> None:
    q, visual, text = make(Case(F32, N=20, M=16, past=30, B=1), DEVICE)
    several = torch.randn(1, 8, 20, 128, device=DEVICE)
    whole = attend_reference(several, visual, text, 0.1)
    for back in (0, 7, 19):
        one = slice(19 - back, 20 - back)
        alone = attend_reference(several[:, :, one], visual, _until(text, back), 0.1)
        assert torch.allclose(whole[:, :, one], alone, atol=1e-5)


def _until(text: Text, back: int) -> Text:
    """All but the last tokens, at full width."""
    keys, values, place = opened_text(text)
    order = place[0].argsort()[int((place[0] < 0).sum()) :]
    order = order[: len(order) - back]
    return Text(keys[:, :, order], values[:, :, order])


def test_outlying_key_channels_do_not_cost_the_others_their_precision() -> None:
    """One channel of a hundred, as Keys with a bias have: errors stay those of its own step."""
    keys = torch.randn(1, 1, 316, 128)
    keys[..., 5] += 100
    errors = []
    for gain in (torch.ones(1, 1, 128), keys.abs().amax(2)):
        text = empty(1, 1, 16, 301, 128)
        assert text.past is not None
        text = text._replace(past=text.past._replace(gain=gain))
        append_plain(text, keys, keys, torch.tensor([316]))
        text = text._replace(lengths=torch.tensor([316], dtype=torch.int32))
        found, _, place = opened_text(text)
        order = place[0].argsort()[-316:]
        query = torch.randn(1, 1, 64, 128, generator=torch.Generator().manual_seed(0))
        errors.append(float((query @ (found[:, :, order] - keys).mT)[..., :300].std()))
    assert errors[1] < errors[0] / 5


@pytest.mark.parametrize("factor", [1e-6, 1e4])
def test_small_and_large_values_keep_their_precision(factor: float) -> None:
    q, visual, text = make(Case(BF16, N=20, M=16, past=40), DEVICE)
    assert text.past is not None and visual is not None
    scales = text.past.scales * torch.tensor([1, factor], dtype=BF16, device=DEVICE)
    text = text._replace(values=text.values * factor, past=text.past._replace(scales=scales))
    visual = visual._replace(values=visual.values * factor)
    truth = attend_plain(q, visual, text, 0.1, torch.float64)
    got = attend_triton(q, visual, text, 0.1)
    assert float((got - truth).norm() / truth.norm()) < 8e-3
