"""The quiet caution: when the model doubts itself, and when a picture is no document."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rotatek.compare.columns import titled
from rotatek.engine.events import Finished, Prefilled
from rotatek.inputs.request import open_image
from rotatek.inputs.token_grid import Grid
from rotatek.inspect import doubt
from rotatek.inspect.doubt import Bin
from rotatek.methods.settings import Settings
from rotatek.page import confidence
from rotatek.page.ask import answers
from rotatek.service.model_list import load_examples
from rotatek.service.run import Run, start

BINS = {"pocket": (Bin(0.0, 2, 0.0), Bin(0.5, 40, 0.1), Bin(0.9, 100, 0.4), Bin(0.98, 900, 0.95))}


def landscape(seed: int) -> np.ndarray:
    """Colours that change as those of nature do: noise with a 1/f spectrum, [240, 320, 3]."""
    rng = np.random.default_rng(seed)
    height, width = 240, 320
    distance = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)) + 1 / width
    channels = []
    for _ in range(3):
        phases = np.exp(2j * np.pi * rng.random(distance.shape))
        waves = np.fft.irfft2(phases / distance, (height, width))
        channels.append((waves - waves.mean()) / waves.std())
    mixed = np.stack(channels, -1) @ np.array([[1.0, 0.6, 0.4], [0.3, 0.8, 0.5], [0.1, 0.2, 0.6]])
    return np.clip(128 + 55 * mixed, 0, 255).astype(np.uint8)


DECLINED = "I only read documents, and this picture shows none."
ABSENT = "not in the image"
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


@pytest.mark.parametrize("seed", range(6))
def test_landscapes_are_photographs(seed: int) -> None:
    assert doubt.is_photo(landscape(seed))


def test_documents_are_not_even_when_harmed(root: Path) -> None:
    paths = sorted((root / "assets" / "suite").glob("[du]*.webp"))[::8]
    photos = [path.name for path in paths if doubt.is_photo(np.asarray(open_image(path)))]
    assert len(paths) == 30 and not photos


def test_the_gallery_is_made_of_documents(root: Path) -> None:
    for example in load_examples(root / "assets" / "examples"):
        assert not doubt.is_photo(np.asarray(open_image(example.image))), example.title


def test_a_sure_answer_gets_no_caution(document: np.ndarray) -> None:
    assert confidence.note(answered(document, 0.99), BINS) == ""
    assert confidence.note(answered(document, 0.99, "qwen2.5-vl-7b"), BINS) == ""
    assert confidence.note(answered(landscape(0), 0.99, "qwen2.5-vl-7b"), BINS) == ""


@pytest.mark.parametrize("sure", [0.4, 0.93, 0.999])
def test_a_photograph_gets_one_however_sure_the_answer(sure: float) -> None:
    for model, bins in (("pocket", BINS), ("pocket-smol", {})):
        assert confidence.note(answered(landscape(0), sure, model), bins) == doubt.PHOTO_NOTE


@pytest.mark.parametrize("said", [DECLINED, ABSENT, "Not in the image."])
def test_to_decline_a_photograph_gets_none_however_unsure(document: np.ndarray, said: str) -> None:
    assert confidence.note(answered(landscape(0), 0.6, answer=said), BINS) == ""
    assert confidence.note(answered(landscape(0), 0.6, answer=f"{said} 12"), BINS)
    assert "is unsure" in confidence.note(answered(document, 0.6, answer=said), BINS)


def test_an_unsure_answer_says_how_often_such_are_right(document: np.ndarray) -> None:
    said = confidence.note(answered(document, 0.93), BINS)
    assert "mean probability of its tokens is 93 %" in said and "40 % of such answers" in said
    assert confidence.note(answered(landscape(0), 0.93), BINS) == doubt.PHOTO_NOTE


def test_where_nobody_counted_low_confidence_alone_counts(document: np.ndarray) -> None:
    for bins, model in ((BINS, "qwen2.5-vl-7b"), ({}, "pocket")):
        assert "Check the answer" in confidence.note(answered(document, 0.4, model), bins)
        assert confidence.note(answered(document, 0.8, model), bins) == ""
    assert "Check the answer" in confidence.note(answered(document, 0.2), BINS)  # two were counted
    assert "photograph" not in confidence.note(answered(landscape(0), 0.4, "qwen2.5-vl-7b"), BINS)


def test_a_stopped_or_empty_answer_gets_none(document: np.ndarray) -> None:
    run = answered(document, 0.3)
    run.stopped = True
    assert confidence.note(run, BINS) == ""
    assert confidence.note(start(titled(Settings(), []), document, "?"), BINS) == ""


def test_few_counted_answers_are_doubted_as_surer_ones_are(document: np.ndarray) -> None:
    bins = {"pocket": (Bin(0.0, 60, 0.1), Bin(0.7, 5, 1.0), Bin(0.9, 80, 0.5), Bin(0.98, 90, 0.9))}
    assert confidence.note(answered(document, 0.75), bins)
    assert not confidence.note(answered(document, 0.99), bins)
    few = {"pocket": (Bin(0.0, 5, 0.1), Bin(0.9, 5, 0.1))}
    assert confidence.note(answered(document, 0.6), few)
    assert not confidence.note(answered(document, 0.95), few)


def test_the_caution_is_shown_below_the_answers(document: np.ndarray) -> None:
    html = answers.cards(answered(document, 0.3), on_cpu=False, caution="Take <care>.")
    assert 'role="note">Take &lt;care&gt;.</p>' in html
    assert "rk-caution" not in answers.cards(answered(document, 0.99), on_cpu=False)


def test_the_measured_bins_are_read(root: Path, tmp_path: Path) -> None:
    folder = root / "assets" / "results"
    measured = doubt.load_bins(folder)
    bins = measured["pocket"]
    written = json.loads((folder / "pocket.json").read_text())["calibration"]["bins"]
    assert len(bins) == len(written) > 3
    assert [b.least for b in bins] == sorted(b.least for b in bins)
    sure = doubt.share_right(0.999, bins)
    assert sure is not None and sure > doubt.DOUBT
    assert doubt.load_bins(tmp_path) == {}


@pytest.mark.parametrize("most,cut", [(4, True), (5, False)])
def test_an_answer_that_took_all_its_tokens_says_so(
    document: np.ndarray, most: int, cut: bool
) -> None:
    run = answered(document, 0.99)
    run.max_new_tokens = most
    shown = answers.cards(run, on_cpu=False)
    assert (f"cut at {most} tokens" in shown) is cut
    assert (answers.CUT_NOTE in shown) is cut
    run.stopped = True
    assert answers.CUT_NOTE not in answers.cards(run, on_cpu=False)


def test_margins_that_were_left_out_are_named(document: np.ndarray) -> None:
    run = answered(document, 0.99)
    column = next(iter(run.columns.values()))
    filled = Prefilled(column.title, 1.0, 4, 4, 8, 1.0, 480, 1000, None, (Grid(2, 2),), "reference")
    run.take(filled)
    assert answers.TRIMMED_NOTE not in answers.cards(run, on_cpu=False)
    run.take(replace(filled, grids=(Grid.within(4, 4, (1, 1, 3, 3)),)))
    assert answers.TRIMMED_NOTE in answers.cards(run, on_cpu=False)
