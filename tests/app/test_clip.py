"""A short video on the page: its frames are asked about until a picture takes their place."""

import json
from pathlib import Path

import pytest

from rotatek.methods.settings import Settings
from rotatek.page.ask import clip as clips
from rotatek.page.ask.events import AskEvents
from rotatek.page.form import values_of
from rotatek.page.inspect import events as inspect
from rotatek.page.page_context import PageContext
from rotatek.service.service import Service
from tests.unit.test_clip import film


def test_a_video_is_taken_asked_and_dropped(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "upload"  # a name says nothing
    file.write_bytes(film(6, size=(224, 160)))
    shown = clips.take(str(file))
    clip = shown["clip"]
    assert len(clip.frames) == 6 and shown["image"] is clip.frames[0]
    assert "6 frames of 5 seconds" in shown["status"]
    events, model = AskEvents(PageContext(service)), service.models[0].name
    service.engine(model)  # a picture is counted once its model is loaded
    counted = events.count(clip.frames[0], model, clip)["count"]
    assert counted > events.count(clip.frames[0], model)["count"]
    form = values_of(Settings.of(keep_channels=0.25))
    *_, last = events.ask(
        image=clip.frames[0], question="What happens?", model=model, max_new_tokens=4, others=[],
        clip=clip, **form,
    )  # fmt: skip
    run = last["run"]
    assert run.chosen.prefilled.visual_tokens == counted
    assert [grid.label for grid in run.trace.grids] == ["frame 1", "frame 3", "frame 5"]
    assert inspect.overview(run)["frame"]["maximum"] == 3
    assert inspect.overview(run)["frame"]["visible"]
    sent = [
        json.loads(inspect.step_through(run, 1, 0, 0, frame, **form)["attention"])
        for frame in (1, 2, 3, 99)
    ]
    seen = [one["figures"]["attention"] for one in sent]
    for number, one in zip((1, 3, 5), sent, strict=False):
        for name in ("attention", "compressed", "kept"):
            assert one["figures"][name]["reading"].startswith(f"Of frame {number}")
        assert len(one["pictures"]) == 1  # a frame of its own: the film brightens
        assert f"rk:{next(iter(one['pictures']))}" in json.dumps(one["figures"]["attention"])
    assert len({next(iter(one["pictures"])) for one in sent[:3]}) == 3
    assert seen[2] == seen[3] and seen[0] != seen[1]
    assert clips.drop() == {"clip": None}


def test_a_damaged_video_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "upload.mp4"
    file.write_bytes(b"\0\0\0\x18ftypisom")
    with pytest.raises(Exception, match="The video is damaged"):
        clips.take(str(file))
