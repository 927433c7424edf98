"""The engine: columns side by side, and follow-up questions on the caches that they keep."""

import gc
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.cache_utils import DynamicCache

from rotatek import BASELINE, Engine, Settings, errors
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.cache_file import ALIGNED
from rotatek.engine.conversation import Conversation
from rotatek.engine.decode import prefill
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Stored, Token
from rotatek.inputs.prompt import encode_follow_up
from rotatek.inputs.request import Limits, Request, make_request
from rotatek.models import Prompt
from tests.fixtures import Picture
from tests.greedy import decode
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
