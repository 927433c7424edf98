"""The quiet caution: when the model doubts itself, and when a picture is no document."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rotatek.engine.events import Finished, Prefilled
from rotatek.inputs.request import open_image
from rotatek.inputs.token_grid import Grid
from rotatek.inspect.doubt import UNSURE_NOTE
from rotatek.methods.columns import titled
from rotatek.methods.settings import Settings
from rotatek.page.ask import answers
from rotatek.service.model_list import load_examples
from rotatek.service.run import Run, start

MEASURED = {"kv_bytes": 480, "kv_bytes_full": 1000}


def answered(
    pixels: np.ndarray, confidence: float, model: str = "pocket", answer: str = "an answer"
) -> Run:
    """A run whose uncompressed answer has this confidence."""
    run = start(titled(Settings(), []), pixels, "?", model)
    for title in run.columns:
        run.take(Finished(title, answer, 4, 1.0, MEASURED | {"confidence": confidence}))
    return run


@pytest.fixture(scope="module")
def document(root: Path) -> np.ndarray:
    example = load_examples(root / "assets" / "examples")[0]
    return np.asarray(open_image(example.image))


def test_a_stopped_or_empty_answer_gets_none(document: np.ndarray) -> None:
    run = answered(document, 0.3)
    assert answers.note(run) == UNSURE_NOTE
    run.stopped = True
    assert answers.note(run) == ""
    assert answers.note(start(titled(Settings(), []), document, "?")) == ""


@pytest.mark.parametrize("most,cut", [(4, True), (5, False)])
def test_an_answer_that_took_all_its_tokens_says_so(
    document: np.ndarray, most: int, cut: bool
) -> None:
    run = answered(document, 0.99)
    run.max_new_tokens = most
    shown = "".join(answers.cards(run, on_cpu=False).values())
    assert (f"cut at {most} tokens" in shown) is cut
    assert (answers.CUT_NOTE in shown) is cut
    run.stopped = True
    assert answers.CUT_NOTE not in answers.cards(run, on_cpu=False)["further"]


def test_margins_that_were_left_out_are_named(document: np.ndarray) -> None:
    run = answered(document, 0.99)
    column = next(iter(run.columns.values()))
    filled = Prefilled(column.title, 1.0, 4, 4, 8, 1.0, 480, 1000, None, (Grid(2, 2),), "reference")
    run.take(filled)
    assert answers.TRIMMED_NOTE not in answers.cards(run, on_cpu=False)["further"]
    run.take(replace(filled, grids=(Grid.within(4, 4, (1, 1, 3, 3)),)))
    assert answers.TRIMMED_NOTE in answers.cards(run, on_cpu=False)["further"]
