"""The engine: columns side by side, follow-up questions, and how tokens are drawn."""

import gc
import pickle
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache
from transformers.generation import logits_process as theirs

from rotatek import BASELINE, Engine, Settings, errors
from rotatek.cache.cache_file import ALIGNED
from rotatek.cache.measures import storage_bytes
from rotatek.engine import sequences
from rotatek.engine.conversation import Conversation
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Stored, Token
from rotatek.engine.passes import prefill
from rotatek.engine.sequences import SampledToken, Sequence, chosen, warped
from rotatek.errors import SchemaBroken
from rotatek.inputs.prompt import encode_follow_up
from rotatek.inputs.request import Limits, Request, make_request
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.models import Prompt, VisionLanguageModel
from tests.fixtures import Picture, at_once, decode
from tests.fixtures import tokens_of as ids
from tests.tiny import tiny_llava, tiny_qwen

COLUMNS = {
    "baseline": BASELINE,
    "lossless": Settings.of(keep_channels=1.0),
    "RotateK": Settings.of(keep_channels=0.125),
    "beyond": Settings.of(smaller=8),
    "FastV": Settings.of(tokens="fastv", keep_tokens=0.4, channels="spark"),
    "VisionZip": Settings.of(tokens="visionzip", keep_tokens=0.45, channels="think"),
}
FAMILIES = {"qwen": tiny_qwen, "llava": tiny_llava}


@pytest.fixture(scope="module", params=FAMILIES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(FAMILIES[request.param](), limits=Limits(turns=3))


def _request(picture: Picture, tokens: int = 6) -> Request:
    return make_request(picture(200, 160, seed=4), "first?", tokens)


def _begun(engine: Engine, picture: Picture, tokens: int = 6) -> tuple[Conversation, list[Event]]:
    conversation = Conversation()
    events = list(engine.compare(_request(picture, tokens), COLUMNS, conversation=conversation))
    assert not [e for e in events if isinstance(e, Failed)]
    return conversation, events


def _said(events: Iterable[Event], name: str) -> list[int]:
    return [e.token_id for e in events if isinstance(e, Token) and e.column == name]


def _refusal(engine: Engine, conversation: Conversation, question: str, tokens: int = 4) -> str:
    with pytest.raises(errors.UserError) as refused:
        engine.follow(conversation, question, tokens)
    return refused.value.message


def test_a_second_turn_equals_a_fresh_prompt_of_both(engine: Engine, picture: Picture) -> None:
    vlm = engine.vlm
    conversation, first = _begun(engine, picture)
    second = list(engine.follow(conversation, "and then?", 6))
    third = list(engine.follow(conversation, "what else?", 6))
    prompt = vlm.prompt(_request(picture))
    ids = prompt.ids[0].tolist()
    for turn, question in ((first, "and then?"), (second, "what else?")):
        ids += _said(turn, "baseline") + encode_follow_up(vlm.tokenizer, question)
        whole = torch.tensor([ids])
        embedded = vlm.embed(Prompt(whole, whole == vlm.image_token, prompt.pixels))
        cache = DynamicCache()
        logits, _ = prefill(vlm, embedded, cache)
        fresh = [step.tokens[0] for step in decode(vlm, embedded, cache, logits, 6)]
        fresh = [token for token in fresh if token not in vlm.stop_ids]
        answered = second if turn is first else third
        assert _said(answered, "baseline") == fresh
        assert _said(answered, "lossless") == fresh
    conversation.close()


def _tensors(cache: Any) -> list[torch.Tensor]:
    if hasattr(cache, "tensors"):
        return [*(tensor for _, tensor in cache.tensors()), *cache.marks()]
    return [t for layer in cache.layers for t in (layer.keys, layer.values)]


def test_closing_frees_every_tensor(engine: Engine, picture: Picture) -> None:
    def live() -> int:
        gc.collect()
        found = (o for o in gc.get_objects() if issubclass(type(o), torch.Tensor))
        return sum(1 for tensor in found if tensor.dim() in (3, 4, 5))

    list(engine.compare(_request(picture), COLUMNS))
    before = live()
    conversation, events = _begun(engine, picture)
    list(engine.follow(conversation, "and then?", 4))
    assert live() > before
    kept = conversation.cache_bytes
    assert kept == sum(storage_bytes(_tensors(c.cache)) for c in conversation.columns)
    conversation.close()
    del events
    assert live() <= before
    assert _refusal(engine, conversation, "still there?") == errors.ConversationGone.sentence


def test_limits_are_a_sentence_and_the_conversation_stays(engine: Engine, picture: Picture) -> None:
    conversation, _ = _begun(engine, picture)
    assert "question is empty" in _refusal(engine, conversation, " ")
    assert "max_new_tokens must be" in _refusal(engine, conversation, "and?", 0)
    long = Engine(engine.vlm, limits=Limits(max_prompt_tokens=conversation.tokens + 40))
    over = errors.ConversationOver.sentence
    assert _refusal(long, conversation, "x" * 40) == over
    list(engine.follow(conversation, "and then?", 2))
    list(engine.follow(conversation, "what else?", 2))
    assert _refusal(engine, conversation, "one more?") == over
    assert conversation.is_open and conversation.turns == 3
    conversation.close()


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "baseline"])
def test_a_stored_conversation_goes_on_as_if_it_had_stayed(
    engine: Engine, picture: Picture, name: str, tmp_path: Path
) -> None:
    """Also when it is stored again after a further turn, which counts towards the limit."""
    kept, paths = Conversation(), [tmp_path / "one", tmp_path / "two"]
    list(engine.compare(_request(picture), {name: COLUMNS[name]}, conversation=kept))
    kept.save(paths[0])
    for path, question in zip(paths, ("and then?", "what else?"), strict=True):
        stored = Conversation.load(path, engine.vlm)
        tensors = sum(1 for column in stored.columns for _ in column.cache.tensors())
        gaps = ALIGNED * tensors  # a file's tensors share storages
        assert stored.cache_bytes < kept.cache_bytes + gaps and stored.tokens == kept.tokens
        stayed = list(engine.follow(kept, question, 6))
        loaded = list(engine.follow(stored, question, 6))
        assert _said(loaded, name) == _said(stayed, name)
        fed = [next(e for e in events if isinstance(e, Prefilled)) for events in (stayed, loaded)]
        assert fed[0].grids == fed[1].grids and fed[0].visual_kept == fed[1].visual_kept
        before, after = (np.asarray(event.kept) for event in fed)
        assert np.array_equal(before, after)
        kept.save(paths[1])
        stored.close()
    refused = Conversation.load(paths[1], engine.vlm)
    over = errors.ConversationOver.sentence
    assert _refusal(engine, refused, "one more?") == over == _refusal(engine, kept, "one more?")
    kept.close()


# -- one question: events in order, columns side by side, what goes wrong -----------------------


def test_every_column_reports_once_in_order_what_live_tensors_take(
    engine: Engine, picture: Picture
) -> None:
    events = list(engine.compare(_request(picture), COLUMNS))
    assert not [e for e in events if isinstance(e, Failed)]
    for name in COLUMNS:
        mine = [e for e in events if e.column == name]
        assert isinstance(mine[0], Prefilled)
        assert isinstance(mine[-1], Finished)
        tokens = [e for e in mine if isinstance(e, Token)]
        assert [t.index for t in tokens] == list(range(len(tokens)))
        assert "".join(t.text for t in tokens).strip() == mine[-1].answer.rstrip("\ufffd")
        assert mine[-1].new_tokens == len(tokens)
    assert [pickle.loads(pickle.dumps(e)).column for e in events] == [e.column for e in events]
    before = {e.column: e for e in events if isinstance(e, Prefilled)}
    after = {e.column: e.metrics for e in events if isinstance(e, Finished)}
    base = before["baseline"]
    stored = {e.column: e.kv_bytes for e in events if isinstance(e, Stored)}
    assert stored["baseline"] == base.kv_bytes_full > stored["RotateK"]
    assert after["baseline"]["kv_bytes"] == after["baseline"]["kv_bytes_full"]
    assert before["FastV"].visual_kept == round(0.4 * base.visual_tokens)
    for name in ("FastV", "VisionZip"):
        kept = before[name].kept
        assert kept is not None and kept.sum() == before[name].visual_kept < base.visual_tokens
    assert base.kept is None
    for figures in after.values():
        assert sum(figures["bytes"].values()) == figures["kv_bytes"]
    # agreement and divergence
    assert after["lossless"]["agreement"] == 1 and after["lossless"]["kl"] < 1e-5
    assert after["lossless"]["first_divergence"] is None
    tokens = [e for e in events if isinstance(e, Token)]
    said = {name: [e.token_id for e in tokens if e.column == name] for name in COLUMNS}
    for name, own in after.items():
        pairs = zip(said[name], said["baseline"], strict=False)
        differs = [i for i, (a, b) in enumerate(pairs) if a != b]
        if own["first_divergence"] is not None and differs:
            assert own["first_divergence"] == differs[0]
        marked = [e.index for e in tokens if e.column == name and e.divergent]
        assert marked[: len(differs)] == differs


# -- the sampler: transformers' own distributions, equal draws alone and in a crowd ------------

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
    monkeypatch.setattr(sequences, "Matcher", lambda *_: Breaks(3))
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
    choice = Engine(qwen).scheduler.choice
    five = Sampling(top_logprobs=5)
    choice._banned = torch.tensor([], dtype=torch.long)
    rows = [SimpleNamespace(sampling=own, first=None, picks=[]) for own in (five, GREEDY)]
    most, none = choice.next(rows, [0, 1], torch.eye(2, 3), 0.0)  # type: ignore[arg-type]
    assert sorted(token for token, _ in most.top) == [0, 1, 2] and not none.top
