"""Videos: sampled about once a second, refused in a sentence, compressed like pictures."""

import io
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

from rotatek import errors
from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cli import main as command
from rotatek.engine.decode import decode, prefill
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Finished, Prefilled
from rotatek.inputs import video as clips
from rotatek.inputs.request import Clip, make_request
from rotatek.inputs.video import open_clip
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.families import EVERY
from tests.tiny import tiny_qwen


def film(
    seconds: float, fps: int = 5, size: tuple[int, int] = (64, 48), container: str = "mp4"
) -> bytes:
    """A video whose picture brightens with time."""
    buffer = io.BytesIO()
    codec = "libvpx" if container == "webm" else "mpeg4"
    with av.open(buffer, "w", format=container) as out:
        stream = out.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        count = int(seconds * fps)
        for number in range(count):
            grey = np.full((size[1], size[0], 3), 255 * number // max(count, 1), dtype=np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        out.mux(stream.encode())
    return buffer.getvalue()


@pytest.fixture(scope="module")
def half_minute() -> Clip:
    return open_clip(film(30, size=(224, 160)))


@pytest.mark.parametrize("container", ["mp4", "mov", "webm", "matroska", "avi"])
def test_a_frame_a_second(container: str) -> None:
    clip = open_clip(film(4, container=container))
    assert [round(at) for at in clip.times] == [0, 1, 2, 3]
    light = [float(np.asarray(frame).mean()) for frame in clip.frames]
    assert light == sorted(light) and {frame.mode for frame in clip.frames} == {"RGB"}


def test_long_videos_are_sampled_more_thinly() -> None:
    clip = open_clip(film(150, fps=2))
    assert clips.MAX_FRAMES / 2 <= len(clip.frames) <= clips.MAX_FRAMES
    gaps = np.diff(clip.times)
    assert gaps.min() == gaps.max() == 4.0


def test_large_frames_are_scaled_down() -> None:
    clip = open_clip(film(1, size=(1600, 900)))
    assert max(clip.frames[0].size) == clips.LONGEST_SIDE


BAD: dict[str, tuple[bytes, type[errors.UserError]]] = {
    "nothing": (b"", errors.ClipUnreadable),
    "text": (b"a film", errors.ClipUnreadable),
    "a playlist": (b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1/x.ts\n", errors.ClipUnreadable),
    "a list of files": (b"ffconcat version 1.0\nfile x.mp4\n", errors.ClipUnreadable),
    "half a film": (film(3)[:900], errors.ClipUnreadable),
    "a head alone": (b"\0\0\0\x18ftypisom" + bytes(64), errors.ClipUnreadable),
    "noise behind a head": (
        b"\x1aE\xdf\xa3" + np.random.default_rng(0).bytes(4000), errors.ClipUnreadable
    ),
    "tiny frames": (film(1, size=(8, 8)), errors.ClipUnreadable),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused(name: str) -> None:
    data, kind = BAD[name]
    with pytest.raises(kind):
        open_clip(data)


def test_mutated_videos_are_read_or_refused() -> None:
    whole, rng = film(2), np.random.default_rng(0)
    for _ in range(30):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 20):
            data[place] = int(rng.integers(256))
        try:
            assert open_clip(bytes(data)).frames
        except errors.UserError:
            continue


@pytest.mark.parametrize("limit", ["MAX_SECONDS", "MAX_DECODED", "PATIENCE_S"])
def test_a_video_that_does_not_end_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, limit, 2 if limit != "PATIENCE_S" else -1)
    with pytest.raises(errors.ClipTooLong):
        open_clip(film(5))


def test_a_large_file_and_a_missing_package_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "film.mp4"
    file.write_bytes(film(1))
    assert len(open_clip(file).frames) == 1
    monkeypatch.setattr(clips, "MAX_CLIP_BYTES", 100)
    for given in (file, film(1)):
        with pytest.raises(errors.ClipTooLarge):
            open_clip(given)
    monkeypatch.setattr(clips, "find_spec", lambda name: None)
    with pytest.raises(errors.ClipsNotInstalled, match=r"rotatek\[video\]"):
        open_clip(file)


@pytest.mark.parametrize("family", EVERY)
def test_every_family_answers_about_a_clip(family: str, half_minute: Clip) -> None:
    vlm = EVERY[family]()
    short = Clip(half_minute.frames[:5], half_minute.times[:5])
    request = make_request(short, "What happens?", 4)
    prompt = vlm.prompt(request)
    assert prompt.visual_tokens == sum(prompt.pixels.runs) and prompt.pixels.grids[0].label
    assert prompt.pixels.grids[-1].to_cells(np.ones(prompt.visual_tokens)).any()
    columns = {"all": BASELINE, "RotateK": Settings.of(keep_channels=0.25)}
    events = list(Engine(vlm).compare(request, columns))
    assert not [event.message for event in events if isinstance(event, Failed)]
    done = {event.column: event for event in events if isinstance(event, Finished)}
    assert done["RotateK"].metrics["bytes"]["visual_keys"] > 0


@pytest.mark.parametrize("family", EVERY)
def test_tokens_of_a_clip_are_dropped_before_the_language_model(
    family: str, half_minute: Clip
) -> None:
    vlm = EVERY[family]()
    request = make_request(Clip(half_minute.frames[:6], half_minute.times[:6]), "What happens?", 4)
    columns = {"zip": Settings.of(tokens="visionzip", keep_tokens=0.5, keep_channels=0.25)}
    events = list(Engine(vlm).compare(request, columns))
    assert not [event.message for event in events if isinstance(event, Failed)]
    (filled,) = [event for event in events if isinstance(event, Prefilled)]
    every = filled.visual_tokens
    least = (every - len(filled.grids)) / 2  # each view rounds its half
    assert filled.kept is not None and least <= filled.kept.sum() <= 0.6 * every + 1
    for grid in filled.grids:
        assert 0 < grid.to_cells(filled.kept).sum() < grid.rows * grid.columns


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_half_a_minute_is_compressed(family: str, half_minute: Clip) -> None:
    vlm = EVERY[family]()
    assert len(half_minute.frames) == 30
    request = make_request(half_minute, "What happens?", 4)
    columns = {"all": BASELINE, "RotateK": Settings.of(keep_channels=0.25)}
    events = list(Engine(vlm).compare(request, columns, trace=False))
    filled = {event.column: event for event in events if isinstance(event, Prefilled)}
    steps = filled["all"].grids
    assert len(steps) == 15 and steps[1].label == "frame 3"  # two frames share their tokens
    assert filled["RotateK"].kv_bytes < 0.85 * filled["all"].kv_bytes


def test_full_width_is_plain_transformers(
    half_minute: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own `generate` reads our tensors of a clip as it reads its own."""
    vlm = tiny_qwen()
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())
    stop = vlm.model.generation_config.eos_token_id
    banned = (*vlm.banned_ids, stop)
    monkeypatch.setattr(type(vlm), "banned_ids", banned)
    prompt = vlm.prompt(make_request(half_minute, "What happens?", 8))
    inputs = {
        "input_ids": prompt.ids, "mm_token_type_ids": 2 * prompt.visual.int(),
        **prompt.pixels.tensors,
    }  # fmt: skip
    options = {"max_new_tokens": 8, "do_sample": False, "suppress_tokens": list(banned)}
    plain = vlm.model.generate(**inputs, **options)[0, prompt.ids.shape[1] :].tolist()
    settings = Settings.of(keep_channels=1.0)
    cache = RotateKCache(vlm.model, inputs, settings)
    assert cache.plan.visual == prompt.visual_tokens > 0  # video ids are visual
    out = vlm.model.generate(**inputs, **options, **with_cache(vlm.model, cache))
    assert out[0, prompt.ids.shape[1] :].tolist() == plain
    embedded = vlm.embed(prompt)
    own = RotateKCache(vlm.model, embedded.inputs(), settings)
    logits, _ = prefill(vlm, embedded, own)
    assert [s.tokens[0] for s in decode(vlm, embedded, own, logits, 8)] == plain


def test_paired_frames_are_what_the_video_processor_makes() -> None:
    """Two equal frames are one image's patches: an image repeats itself in time."""
    vlm = tiny_qwen()
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (56, 84, 3), dtype=np.uint8))
    still = vlm.preprocess_clip(Clip((image, image), (0.0, 1.0)))
    alone = vlm.preprocess((image,))
    assert torch.equal(still.tensors["pixel_values_videos"], alone.tensors["pixel_values"])
    other = image.rotate(180)
    moving = vlm.preprocess_clip(Clip((image, other), (0.0, 1.0)))
    patches = moving.tensors["pixel_values_videos"].view(-1, 3, 2, 14 * 14)
    for number, frame in enumerate((image, other)):
        own = vlm.preprocess((frame,)).tensors["pixel_values"].view(-1, 3, 2, 14 * 14)
        assert torch.equal(patches[:, :, number], own[:, :, 0])


def test_the_command_line_asks_a_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rotatek import models

    monkeypatch.setattr(models, "load", lambda model, device=None, four_bit=False: tiny_qwen())
    file = tmp_path / "film.mp4"
    file.write_bytes(film(3))
    asked = ["ask", "--video", str(file), "What happens?", "--max-new-tokens", "4"]
    assert command.main([*asked, "--json"]) == 0
    assert '"visual_tokens"' in capsys.readouterr().out
    assert command.main(["ask", "--video", str(file), "picture.png", "What happens?"]) == 2
    file.write_bytes(b"\0\0\0\x18ftypisom")
    assert command.main(asked) == 2
    out = capsys.readouterr()
    assert out.err.splitlines()[-1] == errors.ClipUnreadable.sentence


def test_a_clip_is_thinned_to_fit_the_context(half_minute: Clip) -> None:
    vlm = EVERY["llava"]()
    request = make_request(half_minute, "What happens?", 4)
    whole, part = vlm.prompt(request), vlm.prompt(request, 200)
    assert whole.visual_tokens == 30 * 16 and part.visual_tokens == 8 * 16
