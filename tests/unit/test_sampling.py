"""The sampler: transformers' own distributions, equal draws alone and in a crowd."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache
from transformers.generation import logits_process as theirs

from rotatek import BASELINE, Engine, Settings
from rotatek.engine.events import Failed, Token
from rotatek.engine.sequences import SampledToken, Sequence, chosen, warped
from rotatek.errors import SchemaBroken
from rotatek.inputs.request import Request, make_request
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture, at_once
from tests.fixtures import tokens_of as ids

DRAWS = 20_000
WARPS: dict[str, dict[str, Any]] = {
    "as it is": {"temperature": 1.0},
    "hotter": {"temperature": 1.7},
    "top k": {"temperature": 1.0, "top_k": 7},
    "top p": {"temperature": 1.0, "top_p": 0.8},
    "min p": {"temperature": 1.3, "min_p": 0.1},
    "all": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
}


def logits_like(rows: int = 1, vocabulary: int = 60, seed: int = 5) -> Tensor:
    return 2.5 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def row_of(own: Sampling, **given: Any) -> Sequence:
    return Sequence(DynamicCache(), None, 0, 1, sampling=own, **given)


def by_transformers(logits: Tensor, own: Sampling) -> Tensor:
    """transformers' warpers, in the order of its `generate`."""
    warpers: list[Any] = [theirs.TemperatureLogitsWarper(own.temperature)]
    warpers += [theirs.TopKLogitsWarper(own.top_k)] if own.top_k else []
    warpers += [theirs.TopPLogitsWarper(own.top_p)] if own.top_p < 1 else []
    warpers += [theirs.MinPLogitsWarper(own.min_p)] if own.min_p else []
    none = torch.zeros(logits.shape[0], 1, dtype=torch.long)
    return theirs.LogitsProcessorList(warpers)(none, logits)


@pytest.mark.parametrize("name", WARPS)
def test_distributions_are_those_of_transformers(name: str) -> None:
    """The same tokens are left, with the same probabilities; draws follow them."""
    own, logits = Sampling(seed=3, **WARPS[name]), logits_like()
    expected = by_transformers(logits.clone(), own).softmax(-1)[0]
    found = warped(logits.clone(), [own]).softmax(-1)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    assert torch.equal(found > 0, expected > 0)
    rows = [row_of(own, draw=number) for number in range(DRAWS)]
    drawn = chosen(logits.expand(DRAWS, -1).clone(), rows)
    counts = drawn.bincount(minlength=logits.shape[-1]).double()
    assert not counts[expected == 0].any()
    often = expected * DRAWS >= 5
    rest = expected.double()[~often].sum() * DRAWS
    seen = [*counts[often].tolist(), *([counts[~often].sum().item()] if rest >= 5 else [])]
    wanted = [*(expected.double()[often] * DRAWS).tolist(), *([rest.item()] if rest >= 5 else [])]
    square = sum((a - b) ** 2 / b for a, b in zip(seen, wanted, strict=True))
    freedom = len(seen) - 1
    assert square < freedom + 4.5 * (2 * max(freedom, 1)) ** 0.5, (square, freedom)


def test_penalties_and_biases() -> None:
    """Against transformers, and against a plain reference where it has none."""
    logits, said, read = logits_like(), [4, 9, 9, 2], [2, 30]
    picks = [SampledToken(token, 1.0, None, 0.0) for token in said]
    row = row_of(Sampling(repetition_penalty=1.4), read=frozenset(read), picks=picks)
    found = logits[0].clone()
    row.adjust(found)
    penalty = theirs.RepetitionPenaltyLogitsProcessor(1.4)
    assert torch.equal(found, penalty(torch.tensor([read + said]), logits.clone())[0])

    own = Sampling(presence_penalty=0.7, frequency_penalty=-0.3, logit_bias=((9, 2.0), (1, -100.0)))
    row = row_of(own, picks=picks)
    expected = logits[0].clone()
    for token in set(said):
        expected[token] -= 0.7 - 0.3 * said.count(token)
    expected[9] += 2
    expected[1] -= 100
    found = logits[0].clone()
    row.adjust(found)
    torch.testing.assert_close(found, expected)


# -- whole answers -----------------------------------------------------------------------------


def asked(picture: Picture, number: int, own: Sampling, tokens: int = 10) -> Request:
    return make_request(picture(84, 84, seed=number), f"question {number}", tokens, sampling=own)


MIXED = (
    GREEDY, Sampling(temperature=2.0, seed=1), Sampling(temperature=0.7, top_p=0.9, seed=2),
    Sampling(frequency_penalty=1.5), Sampling(temperature=1.8, top_k=9, min_p=0.02, seed=3),
    Sampling(temperature=1.5, repetition_penalty=1.3, presence_penalty=1.0, seed=4),
    Sampling(top_logprobs=3), Sampling(temperature=2.0, seed=1),
)  # fmt: skip


@pytest.mark.parametrize("graphs", [False, True], ids=["launched", "captured"])
def test_a_crowd_changes_no_answer(
    graphs: bool, qwen: VisionLanguageModel, picture: Picture, recorded: list[Any]
) -> None:
    """Greedy, penalised and drawn rows in one batch, as each is answered alone."""
    columns = {"full": BASELINE, "rotated": Settings.of(keep_channels=0.25)}
    work = [asked(picture, n % 3, MIXED[n % len(MIXED)]) for n in range(12)]
    alone = [ids([*Engine(qwen).compare(one, columns, trace=False)]) for one in work]
    engine = Engine(qwen)
    engine.graphs = engine.scheduler.graphs = graphs

    def answered(one: Request) -> dict[str, list[int]]:
        return ids(engine.compare(one, columns, trace=False))

    assert at_once([partial(answered, one) for one in work]) == alone
    assert engine.state().tokens > 2 * engine.state().steps
    said = {str(answers) for answers in alone}
    assert len(said) > 4, "chance has a part in them, and pictures are three"


class Breaks:
    """A schema's matcher that gives up after some tokens."""

    def __init__(self, after: int) -> None:
        self.left = after

    def allowed(self, vocabulary: int, device: torch.device) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise SchemaBroken
        return torch.ones(vocabulary, dtype=torch.bool, device=device)

    def take(self, token: int) -> None:
        pass


def test_a_schema_that_breaks_ends_its_own_answer_only(
    qwen: VisionLanguageModel, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, plain = Engine(qwen), asked(picture, 5, GREEDY, 20)
    alone = ids([*Engine(qwen).answer(plain, BASELINE)])
    monkeypatch.setattr(engine.scheduler.choice._grammars, "matcher", lambda grammar: Breaks(3))
    broken = asked(picture, 5, Sampling(temperature=1.0, seed=1, grammar="{}"), 20)
    whole, (*before, last) = at_once(
        [partial(lambda own: [*engine.answer(own, BASELINE)], own) for own in (plain, broken)]
    )
    assert ids(whole) == alone
    assert isinstance(last, Failed) and isinstance(last.error, SchemaBroken)
    assert len([e for e in before if isinstance(e, Token)]) == 3
    assert engine.state().live_bytes == 0 and engine.scheduler.running == 0


def test_log_probabilities_are_a_log_softmax(qwen: VisionLanguageModel, picture: Picture) -> None:
    """Of the model's own logits, whatever was drawn from them."""
    own, seen = Sampling(temperature=0.9, seed=2, logit_bias=((70, 3.0),), top_logprobs=5), []
    engine = Engine(qwen)
    choose = engine.scheduler.choice.choose

    def watch(logits: Tensor, rows: Any = ()) -> Tensor:
        seen.append(logits.clone())
        return choose(logits, rows)

    engine.scheduler.choice.choose = watch  # type: ignore[method-assign]
    events = engine.answer(asked(picture, 4, own), BASELINE)
    tokens = [e for e in events if isinstance(e, Token)]
    assert len(tokens) > 3
    for token, logits in zip(tokens, seen, strict=False):
        logs = logits.log_softmax(-1)[0]
        first, *rest = token.likely
        assert first.logprob == pytest.approx(logs[token.token_id].item(), abs=1e-5)
        best = logs.topk(5)
        assert [one.logprob for one in rest] == pytest.approx(best.values.tolist(), abs=1e-5)
