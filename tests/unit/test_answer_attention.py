"""A column's attention over its own cache, for every method."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels.reference import Text, Visual, attend_reference
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.inputs.request import make_request
from rotatek.inspect.answer_attention import (
    AnswerAttention,
    AnswerAttentionRecorder,
    weights,
)
from rotatek.inspect.answer_rows import MAX_STEPS
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import BASELINE, Settings
from tests.families import EVERY
from tests.fixtures import Picture, present


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_5"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(EVERY[request.param]())


def attention_of(
    engine: Engine, picture: Picture, columns: dict[str, Settings]
) -> dict[str, AnswerAttention]:
    request = make_request(picture(150, 120, seed=1), "Which?", 6)
    done = [e for e in engine.compare(request, columns) if isinstance(e, Finished)]
    return {event.column: present(event.attention) for event in done}


def test_weights_are_those_of_the_attention() -> None:
    """Values that name their token turn the attention's output into its weights."""
    torch.manual_seed(0)
    d, text, visual = 16, 4, 9
    keys, queries = torch.randn(1, 2, visual + text, d), torch.randn(1, 4, 3, d)
    names = torch.eye(d)[None, None, : visual + text].expand(1, 2, -1, -1)
    parts = [(part[:, :, :visual], part[:, :, visual:]) for part in (keys, names)]
    seen = Visual(parts[0][0], parts[1][0])
    others = Text(parts[0][1], parts[1][1])
    found = weights(queries[0], seen, others, steps=(0, 1, 2), fed=2)
    expected = attend_reference(queries, seen, others, d**-0.5)[0, :, :, :visual].mean(0)
    assert np.allclose(found, expected.numpy(), atol=1e-6)


def rows(seen: AnswerAttention) -> NDArray[np.float64]:
    return seen.cells.astype(float) / 255


def test_every_method_attends_where_its_own_cache_leads(engine: Engine, picture: Picture) -> None:
    columns = {"plain": BASELINE, "lossless": Settings.of(keep_channels=1.0)} | {
        name: Settings.of(tokens="fastv", keep_tokens=0.4, channels=name) for name in CHANNELS
    }
    found = attention_of(engine, picture, columns)
    assert np.abs(rows(found["plain"]) - rows(found["lossless"])).max() < 0.02
    for seen in found.values():
        assert seen.cells.shape == (len(seen.steps), found["plain"].cells.shape[1])
        assert (seen.cells.max(axis=1) == 255).all()
    dropped = (found["full"].cells == 0).all(axis=0).mean()
    assert (found["plain"].cells == 0).all(axis=0).mean() < dropped


def test_a_further_question_has_attention_of_its_own(engine: Engine, picture: Picture) -> None:
    columns, talk = {"plain": BASELINE, "small": Settings.of(keep_channels=0.5)}, Conversation()
    request = make_request(picture(150, 120, seed=1), "Which?", 4)
    first = list(engine.compare(request, columns, conversation=talk))
    later = list(engine.follow(talk, "And which?", 4))
    before, after = ({e.column: present(e.attention) for e in events if isinstance(e, Finished)}
                     for events in (first, later))  # fmt: skip
    for name in columns:
        assert after[name].steps[0] == 0 and after[name].cells.shape[1] > 1
        assert not np.array_equal(after[name].cells, before[name].cells)
    talk.close()


def test_long_answers_are_recorded_thinly() -> None:
    recorder = AnswerAttentionRecorder.of(3)
    assert recorder.first == 2
    for token in range(500):
        for layer in range(3):
            recorder.see(layer, torch.zeros(1, 2, 5 if token == 0 else 1, 4))
    steps, rows = recorder.recorded.steps, recorder.recorded.rows
    assert steps[0] == 0 and len(steps) <= MAX_STEPS + 1
    assert list(rows) == [2] and len(rows[2]) == len(steps)
    assert len(set(np.diff(steps))) == 1
