"""The lessons: stored small, drawn without a model, and every button sets what its lesson shows."""

import json
import re
from pathlib import Path

import gradio as gr
import numpy as np
import pytest

from rotatek.inspect import trace_analysis
from rotatek.page.form import settings_of, values_of
from rotatek.page.learn import events, lessons, story, widgets
from rotatek.page.results import files
from rotatek.service.model_list import Example
from rotatek.service.service import Service
from tests.app.test_inspect import figures
from tests.fixtures import present
from viz import masks

ASSETS = Path(__file__).resolve().parents[2] / "assets"
Made = tuple[story.Story, Path]  # a story, and the file it was stored in


def test_the_committed_story_is_small_and_told_without_a_model() -> None:
    assert (ASSETS / "traces" / story.NAME).stat().st_size < 1_000_000
    told = lessons.stored_lessons(ASSETS)
    assert len(told) == 7
    sent = figures(lessons.payload(ASSETS))
    assert len(sent) == sum(len(lesson.figures) for lesson in told) == 14
    for lesson in told:
        assert 200 < len(lesson.text) < 750
        assert not re.search(r"nan|inf\b|None", lesson.text)
    assert json.loads(lessons.payload(ASSETS))["pictures"][lessons.PICTURE].startswith(
        "data:image/png"
    )


@pytest.fixture(scope="module")
def made(service: Service, picture_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("assets") / "traces" / story.NAME
    example = Example(picture_file, "A square", ("Which colour?",))
    return story.make(service, example, path), path


def test_a_story_comes_back_as_it_was_stored(made: Made) -> None:
    stored, path = made
    loaded = present(story.load(path))
    assert loaded[1:-1] == stored[1:-1]
    assert np.array_equal(loaded.spectra, stored.spectra)
    for name in story.ARRAYS:
        one, other = (getattr(s.trace.layers[0], name) for s in (stored, loaded))
        assert np.array_equal(one, other) and one.dtype == other.dtype
    assert loaded.trace.shape == (1, 1) and loaded.trace.steps == stored.trace.steps


def test_lessons_follow_whatever_was_stored(made: Made, picture_file: Path) -> None:
    stored, _ = made
    pixels = np.zeros((224, 336, 3), dtype=np.uint8)
    told = lessons.lessons(stored, pixels, files.Files())
    held = sum(stored.columns["FastV + RotateK"]["bytes"].values())
    bars = told[4].figures["Where the bytes are"].figure.data
    assert sum(trace["x"][3] for trace in bars) == pytest.approx(held, rel=5e-3)
    assert "Over many questions" not in told[4].figures  # nothing was measured here
    for column in stored.columns.values():
        assert column["bytes"].keys() >= {"visual_keys", "text"}


def test_the_lesson_on_bits_draws_what_the_methods_hand_out() -> None:
    """The head's own directions above the water have bits, and no others."""
    stored, named = present(story.load(ASSETS / "traces" / story.NAME)), story.cast()
    method, at = named.bits.channels, (stored.layer, stored.head)
    depths = trace_analysis.key_bits(stored.trace, method, stored.spectra)[at]
    level = present(trace_analysis.water_level(method, stored.spectra, *at))
    shares = stored.spectra[at] / stored.spectra[at].sum()
    assert np.array_equal(depths[::16] > 0, shares.reshape(-1, 16).mean(1) > level)
    lesson = lessons.stored_lessons(ASSETS)[-1]
    assert f"{int((depths > 0).sum())} of this head's {len(depths)} directions" in lesson.text
    assert lesson.figures["What each direction gets"].figure.data[0]["y"][0] == depths[0]


def test_a_missing_or_damaged_story_makes_a_sentence(tmp_path: Path) -> None:
    assert story.load(tmp_path / "none.npz") is None
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / story.NAME).write_bytes(b"PK\x03\x04 not an archive")
    assert story.load(tmp_path / "traces" / story.NAME) is None
    with gr.Blocks() as page:
        made = widgets.learn_part(tmp_path)
    assert made.buttons == () and lessons.payload(tmp_path) == ""
    words = [block.value for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any(widgets.MISSING in str(value) for value in words)


def test_buttons_set_what_their_lesson_shows() -> None:
    for lesson in lessons.stored_lessons(ASSETS):
        assert settings_of(values_of(lesson.settings)) == lesson.settings
        shown = events.setting(lesson)()
        assert shown.pop("opened_tab")["selected"] == "ask"
        assert shown == values_of(lesson.settings)


def test_the_methods_are_what_the_lessons_say_of_them() -> None:
    stored, cast = present(story.load(ASSETS / "traces" / story.NAME)), story.cast()
    told = {one.name: one for one in (cast.ours, cast.fixed, cast.ragged)}
    masked = trace_analysis.masks(stored.trace, 0, 0, told, 32)
    assert masks.agreement(masked[cast.fixed.name]) == 1 > masks.agreement(masked[cast.ragged.name])
    assert cast.ours.rotates and not (cast.fixed.rotates or cast.ragged.rotates)
    assert stored.columns.keys() == cast.columns().keys()
    assert [round(s.nominal_kv, 6) for s in cast.columns().values()][2:5] == [0.25] * 3
