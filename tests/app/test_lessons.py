"""The lessons: stored small, shown without a model, and every button sets what its lesson shows."""

import gzip
import json
import re
from pathlib import Path

import gradio as gr
import numpy as np
import pytest

from docs import lessons as making
from rotatek.compare.columns import UNCOMPRESSED
from rotatek.inspect import trace_analysis
from rotatek.page.form import settings_of, values_of
from rotatek.page.inspect.drawings import parts_of
from rotatek.page.learn import events, lessons, widgets
from rotatek.page.results import files
from rotatek.service.model_list import Example
from rotatek.service.service import Service
from tests.app.test_inspect import figures
from tests.fixtures import present
from viz import masks

ASSETS = Path(__file__).resolve().parents[2] / "assets"
Made = tuple[making.Head, list[making.Drawn], Path]  # the last: a folder of assets


def test_the_committed_lessons_are_small_and_shown_without_a_model() -> None:
    assert (ASSETS / "traces" / lessons.NAME).stat().st_size < 1_000_000
    told = lessons.stored_lessons(ASSETS)
    assert len(told) == 7
    sent = figures(lessons.payload(ASSETS))
    assert len(sent) == sum(len(lesson.figures) for lesson in told) == 14
    for lesson in told:
        assert 200 < len(lesson.text) < 750
        assert not re.search(r"nan|inf\b|None", lesson.text)
    assert json.loads(lessons.payload(ASSETS))["pictures"][making.PICTURE].startswith(
        "data:image/png"
    )


@pytest.fixture(scope="module")
def made(service: Service, picture_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("assets")
    one = making.asked(service, Example(picture_file, "A square", ("Which colour?",)))
    told = making.lessons(one, files.Files())
    making.save(told, one.run.pixels, folder / "traces" / lessons.NAME)
    return one, told, folder


def test_lessons_come_back_as_they_were_stored(made: Made) -> None:
    _, told, folder = made
    stored = lessons.stored_lessons(folder)
    assert [(one.title, one.text, one.settings) for one in stored] == [
        (one.title, one.text, one.settings) for one in told
    ]
    assert [one.figures for one in stored] == [tuple(one.figures) for one in told]
    sent = figures(lessons.payload(folder))
    assert len(sent) == sum(len(one.figures) for one in told)
    summary = next(iter(told[0].figures.values())).summary
    assert sent[lessons.frame(1, 1)]["summary"] == summary


def test_lessons_follow_the_run(made: Made) -> None:
    one, told, _ = made
    parts = parts_of(one.run)
    bars = told[4].figures["Where the bytes are"].figure.data
    held = sum(parts["FastV + RotateK"].values())
    assert sum(trace["x"][3] for trace in bars) == pytest.approx(held, rel=5e-3)
    assert "Over many questions" not in told[4].figures  # nothing was measured here
    for column in parts.values():
        assert column.keys() >= {"visual_keys", "text"}
    assert one.run.question in told[3].text and one.answers(UNCOMPRESSED) in told[4].text


def test_the_lesson_on_bits_draws_what_the_methods_hand_out(made: Made) -> None:
    """The head's own directions above the water have bits, and no others."""
    one, told, _ = made
    trace, method, at = one.at[0], making.BITS.channels, (one.layer, one.head)
    spectra = trace_analysis.spectra(trace, making.OURS)
    depths = trace_analysis.key_bits(trace, method, spectra)[at]
    level = present(trace_analysis.water_level(method, spectra, *at))
    shares = spectra[at] / spectra[at].sum()
    assert np.array_equal(depths[::16] > 0, shares.reshape(-1, 16).mean(1) > level)
    lesson = told[-1]
    assert f"{int((depths > 0).sum())} of this head's {len(depths)} directions" in lesson.text
    assert lesson.figures["What each direction gets"].figure.data[0]["y"][0] == depths[0]


WHOLE = gzip.compress(b'{"lessons":[],"drawn":{}}', mtime=0)
DAMAGED = {
    "missing": None,
    "empty": b"",
    "no gzip": b"PK not gzip",
    "short": WHOLE[:-9],
    "a wrong check": WHOLE[:-8] + bytes(8),
    "a wrong block": WHOLE[:10] + b"\xff" + WHOLE[11:],
    "no JSON": gzip.compress(b"PK not JSON"),
    "no UTF-8": gzip.compress(b"\xff\xfe\xff"),
    "a list": gzip.compress(b"[]"),
    "no text": gzip.compress(b'{"lessons": [{"title": "x"}]}'),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_missing_or_damaged_lessons_make_a_sentence(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "traces").mkdir()
        (tmp_path / "traces" / lessons.NAME).write_bytes(content)
    with gr.Blocks() as page:
        made = widgets.LearnWidgets(tmp_path)
    assert made.buttons == [] and lessons.payload(tmp_path) == ""
    words = [block.value for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any(widgets.MISSING in str(value) for value in words)


def test_buttons_set_what_their_lesson_shows() -> None:
    for lesson in lessons.stored_lessons(ASSETS):
        assert settings_of(values_of(lesson.settings)) == lesson.settings
        shown = events.setting(lesson)()
        assert shown.pop("opened_tab")["selected"] == "ask"
        assert shown == values_of(lesson.settings)


def test_the_methods_are_what_the_lessons_say_of_them(made: Made) -> None:
    one, _, _ = made
    methods = {"think": making.THINK, "spark": making.SPARK}
    masked = trace_analysis.masks(*one.at, methods, one.k)
    assert masks.agreement(masked["think"]) == 1 > masks.agreement(masked["spark"])
    assert making.OURS.rotates and not (making.THINK.rotates or making.SPARK.rotates)
    assert [round(s.nominal_kv, 6) for s in making.COLUMNS.values()][2:5] == [0.25] * 3
