"""The tour: stored small, drawn without a model, and every button sets what its lesson shows."""

import json
import re
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from rotatek.page.choices import Example, settings_of

from rotatek.page import tour
from rotatek.page.service import Service
from tests.app.test_lens import figures

ASSETS = Path(__file__).resolve().parents[2] / "assets"


def test_the_committed_story_is_small_and_told_without_a_model() -> None:
    assert (ASSETS / "traces" / tour.NAME).stat().st_size < 1_000_000
    lessons = tour.told(ASSETS)
    assert len(lessons) == 6
    sent = figures(tour.payload(ASSETS))
    assert len(sent) == sum(len(lesson.figures) for lesson in lessons) == 12
    for lesson in lessons:
        assert 200 < len(lesson.text) < 700
        assert not re.search(r"nan|inf\b|None", lesson.text)
    assert json.loads(tour.payload(ASSETS))["pictures"]["tour"].startswith("data:image/png")


@pytest.fixture(scope="module")
def story(service: Service, picture_file: Path, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("assets") / "traces" / tour.NAME
    example = Example(picture_file, "A square", ("Which colour?",))
    return tour.make(service, example, path), path


def test_a_story_comes_back_as_it_was_stored(story) -> None:
    made, path = story
    loaded = tour.load(path)
    assert loaded[1:] == made[1:]
    for name in tour.ARRAYS:
        one, other = (getattr(s.trace.layers[0], name) for s in (made, loaded))
        assert np.array_equal(one, other) and one.dtype == other.dtype
    assert loaded.trace.shape == (1, 1) and loaded.trace.steps == made.trace.steps


def test_lessons_follow_whatever_was_stored(story, picture_file: Path) -> None:
    made, _ = story
    pixels = np.zeros((224, 336, 3), dtype=np.uint8)
    lessons = tour.lessons(made, pixels, {})
    held = sum(made.columns["FastV + RotateK"]["bytes"].values())
    bars = lessons[4].figures["Where the bytes are"].figure.data
    assert sum(trace["x"][3] for trace in bars) == pytest.approx(held, rel=5e-3)
    assert "Over many questions" not in lessons[4].figures  # nothing was measured here
    for column in made.columns.values():
        assert column["bytes"].keys() >= {"visual_keys", "text"}


def test_a_missing_or_damaged_story_makes_a_sentence(tmp_path: Path) -> None:
    assert tour.load(tmp_path / "none.npz") is None
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / tour.NAME).write_bytes(b"PK\x03\x04 not an archive")
    assert tour.load(tmp_path / "traces" / tour.NAME) is None
    with gr.Blocks() as page:
        made = tour.part(tmp_path)
    assert made.buttons == [] and tour.payload(tmp_path) == ""
    words = [block.value for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any(tour.MISSING in str(value) for value in words)


def test_buttons_set_what_their_lesson_shows() -> None:
    for lesson in tour.told(ASSETS):
        assert settings_of(*tour.widgets_of(lesson.settings)) == lesson.settings
