"""Caches in files: what is loaded goes on token for token, and what is not whole is refused."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from PIL import Image
from safetensors.torch import load
from torch import Tensor
from transformers.cache_utils import DynamicCache

from rotatek import Pictures, RotateKCache, Settings, errors, make_request
from rotatek.bridge.layers import key_layers
from rotatek.cache import cache_file
from rotatek.cache.measures import storage_bytes
from rotatek.engine.passes import prefill
from rotatek.methods.calibration import Calibrator
from rotatek.methods.channels import CHANNELS
from rotatek.methods.rotation import load_bases
from rotatek.methods.tokens import TOKENS
from rotatek.models import Embedded, VisionLanguageModel
from tests.families import EVERY, tiny_gemma3
from tests.fixtures import Picture, collate, decode, half
from tests.tiny import tiny_llava, tiny_qwen
from tests.unit.test_methods import VARIANTS

NEW = 6
FAMILIES = ("llava_next", "qwen3_5", "a window")  # beside Qwen2.5-VL, which has every form
KINDS = EVERY | {"a window": lambda: tiny_gemma3(40, 16, tied=False)}
MATRIX = [  # every form of every method where no token is dropped, each pruner, other families
    *(("qwen2_5_vl", "none", {"channels": name, **form}, 1) for name in CHANNELS
      for form in VARIANTS.get(name, [{}])),
    *(("qwen2_5_vl", name, {}, 2 if name == "fastv" else 1) for name in TOKENS if name != "none"),
    *((family, tokens, {}, 1) for family in FAMILIES for tokens in ("none", "fastv")),
]  # fmt: skip


@pytest.fixture(scope="module")
def models() -> Callable[[str], VisionLanguageModel]:
    made: dict[str, VisionLanguageModel] = {}
    return lambda name: made[name] if name in made else made.setdefault(name, KINDS[name]())


def filled(
    vlm: VisionLanguageModel, picture: Picture, settings: Settings, samples: int = 1
) -> tuple[RotateKCache, Embedded, Tensor]:
    """A cache of one prompt or a padded batch, what it was filled from, and its logits."""
    prompts = []
    for number, size in enumerate(((150, 120), (90, 260))[:samples]):
        request = make_request(picture(*size, seed=number), "what is the total?"[number:], NEW)
        prompts.append(vlm.embed(vlm.prompt(request), settings.tokens))
    embedded = collate(prompts) if samples > 1 else prompts[0]
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    return cache, embedded, prefill(vlm, embedded, cache)[0]


def said(
    vlm: VisionLanguageModel, cache: RotateKCache, embedded: Embedded, logits: Tensor
) -> list[tuple[list[int], Tensor]]:
    """Tokens and logits of the answer."""
    steps = decode(vlm, embedded, cache, logits, NEW)
    return [(step.tokens, step.logits) for step in steps]


@pytest.mark.parametrize(("family", "tokens", "options", "samples"), MATRIX, ids=str)
def test_a_loaded_cache_goes_on_as_the_saved_one(
    family: str, tokens: str, options: dict[str, Any], samples: int,
    models: Callable[[str], VisionLanguageModel], picture: Picture, tmp_path: Path,
) -> None:  # fmt: skip
    vlm, settings = models(family), Settings.of(**half(tokens), keep_channels=0.25, **options)
    cache, embedded, logits = filled(vlm, picture, settings, samples)
    path = tmp_path / "answer.cache"
    assert cache.save(path, {"asked": "first"}) == path.stat().st_size
    loaded = RotateKCache.load(path, vlm.model)
    assert loaded.settings == settings and loaded.notes == {"asked": "first"}
    before, after = cache.bytes(), loaded.bytes()
    tensors = [t for _, t in loaded.tensors()]  # in shared storages, with gaps
    gaps = storage_bytes(tensors) - storage_bytes(t for _, t in cache.tensors())
    assert 0 <= gaps < cache_file.ALIGNED * len(tensors)
    assert after.total == storage_bytes([*tensors, *loaded.marks()]) == sum(after.parts.values())
    before.parts["lengths"] = after.parts["lengths"] = 0  # a loaded cache has no marks to reset to
    assert before.parts == after.parts
    assert loaded.get_seq_length() == cache.get_seq_length()
    assert loaded.plan.visual_kept == cache.plan.visual_kept
    loaded.save(tmp_path / "again", loaded.notes)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    mine, theirs = (said(vlm, one, embedded, logits) for one in (cache, loaded))
    for one, other in zip(mine, theirs, strict=True):
        assert one[0] == other[0] and torch.equal(one[1], other[1])


def test_what_cannot_be_saved_is_said_and_nothing_is_lost(
    qwen: VisionLanguageModel, picture: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = qwen.embed(qwen.prompt(make_request(picture(90, 60), "what?", NEW)))
    cache = RotateKCache(qwen.model, embedded.inputs(), Settings())
    with pytest.raises(errors.CacheNotStorable):
        cache.save(tmp_path / "none")
    prefill(qwen, embedded, cache)
    with pytest.raises(errors.CacheNotStorable):
        cache.save(tmp_path / "none", {"what": DynamicCache()})
    os.mkfifo(tmp_path / "pipe")  # as a device: it would be replaced by a file
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "kept").write_bytes(b"as it was")

    def full(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", full)
    for name in ("no folder/none", "pipe", "link", ".", "kept"):
        with pytest.raises(errors.CacheFileUnwritable):
            cache.save(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["kept", "link", "pipe"]
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "kept").read_bytes() == b"as it was"


@pytest.fixture(scope="module")
def whole(qwen: VisionLanguageModel, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small stored cache of `qwen`, with digits."""

    def shades(width: int, height: int, **_: Any) -> Image.Image:
        return Image.linear_gradient("L").resize((width, height)).convert("RGB")

    path = tmp_path_factory.mktemp("whole") / "small.cache"
    filled(qwen, shades, Settings.of(smaller=6))[0].save(path)
    return path.read_bytes()


Head = dict[str, Any]


def edited(data: bytes, change: Callable[[Head], object]) -> bytes:
    """A file whose head is another, with the right checksum: no accident makes one."""
    plain = zstandard.decompress(data)
    length = int.from_bytes(plain[:8], "little")
    head = json.loads(json.loads(plain[8 : 8 + length])["__metadata__"]["rotatek"])
    change(head)
    return cache_file.packed(load(plain), json.dumps(head))


def _store(head: Head) -> dict[str, Any]:
    found: dict[str, Any] = head["content"]["layers"][0]["of"][1]
    return found


def _zeros(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(plain)


FOREIGN, DAMAGED = errors.CacheFileForeign, errors.CacheFileDamaged
VERSION, OTHER = errors.CacheFileVersion, errors.CacheOfAnotherModel
BAD: dict[str, tuple[Callable[[bytes], bytes], type[errors.UserError]]] = {
    "empty": (lambda _: b"", FOREIGN),
    "a frame of something else": (lambda _: _zeros(b"text" * 9), FOREIGN),
    "a later one": (lambda d: edited(d, lambda h: h.update(version=99)), VERSION),
    "another model": (lambda d: edited(d, lambda h: h.update(owner="x")), OTHER),
    "larger than memory": (lambda _: _zeros(bytes(1 << 26)), DAMAGED),
    "another frame behind": (lambda d: d + d, DAMAGED),
    "no such row": (lambda d: edited(d, lambda h: h["tensors"][0].__setitem__(0, "x")), VERSION),
    "larger than a row": (
        lambda d: edited(d, lambda h: h["tensors"][0].__setitem__(2, [1 << 40])),
        VERSION,
    ),
    "no such store": (
        lambda d: edited(d, lambda h: _store(h).update({"": "os:system"})), VERSION,
    ),
    "digits beyond their end": (
        lambda d: edited(d, lambda h: _store(h)["of"]["visual"]["of"].update(tokens=9999)),
        VERSION,
    ),
    "no such method": (
        lambda d: edited(d, lambda h: h["content"]["settings"].update(channels="x")),
        errors.SettingError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_end_in_one_sentence(
    name: str, whole: bytes, qwen: VisionLanguageModel, tmp_path: Path
) -> None:
    make, kind = BAD[name]
    path = tmp_path / "bad"
    path.write_bytes(make(whole))
    with pytest.raises(errors.UserError) as refusal:
        RotateKCache.load(path, qwen.model)
    assert refusal.type is kind


def test_flipped_bytes_and_missing_ends(
    whole: bytes, qwen: VisionLanguageModel, tmp_path: Path
) -> None:
    """Refused wherever they are, but for flips that change no number, which zstandard passes."""
    path, plain = tmp_path / "bad", zstandard.decompress(whole)
    for place in (*range(24), *range(24, len(whole), len(whole) // 60), len(whole) - 1):
        for flip in (0x01, 0x10, 0x80):
            damaged = bytearray(whole)
            damaged[place] ^= flip
            path.write_bytes(damaged)
            try:
                loaded = cache_file._unpacked(path)[0]
            except (FOREIGN, DAMAGED):
                continue
            assert all(torch.equal(loaded[k], v) for k, v in load(plain).items())
        path.write_bytes(whole[:place])
        with pytest.raises((FOREIGN, DAMAGED)):
            RotateKCache.load(path, qwen.model)
    for missing in (tmp_path / "not there", tmp_path):
        with pytest.raises(errors.FileUnreadable):
            RotateKCache.load(missing, qwen.model)


def test_another_model_is_refused(whole: bytes, qwen: VisionLanguageModel, tmp_path: Path) -> None:
    """Of another class, with other weights, or in another type; a copy elsewhere is the same."""
    path, halved, same = tmp_path / "file", tiny_qwen(), tiny_qwen()
    path.write_bytes(whole)
    halved.model.bfloat16()
    for other in (tiny_llava(), tiny_qwen(seed=1), halved):
        with pytest.raises(OTHER):
            RotateKCache.load(path, other.model)
    same.model.config._name_or_path = "elsewhere"
    assert RotateKCache.load(path, same.model).settings.channels.name == "rotatek"


def test_without_the_coder_a_sentence_says_what_to_install(
    qwen: VisionLanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for use in (
        lambda: RotateKCache.load(tmp_path / "any", qwen.model),
        lambda: Pictures("pocket", folder=tmp_path / "store"),
    ):
        with pytest.raises(errors.CompressorMissing, match="rotatek\\[store\\]"):
            use()
    assert not (tmp_path / "store").exists()


# -- offline bases: made from many prompts, saved, and used in place of the online ones ----------


def _run(
    vlm: VisionLanguageModel,
    embedded: Embedded,
    settings: Settings,
    recorder: Calibrator | None = None,
) -> tuple[list[int], RotateKCache]:
    cache = RotateKCache(vlm.model, embedded.inputs(), settings, recorder=recorder)
    logits, _ = prefill(vlm, embedded, cache)
    tokens = [s.tokens[0] for s in decode(vlm, embedded, cache, logits, 6)]
    return tokens, cache


@pytest.mark.parametrize(("family", "layers"), [("qwen2_5_vl", 4), ("qwen3_5", 2)])
def test_calibrated_on_itself_equals_online(
    family: str, layers: int, picture: Picture, tmp_path: Path
) -> None:
    vlm = EVERY[family]()
    embedded = vlm.embed(vlm.prompt(make_request(picture(200, 150), "what?", 6)))
    online = Settings.of(keep_channels=0.25, solver="eigh")
    calibrator = Calibrator()
    wanted, cache = _run(vlm, embedded, online, calibrator)
    path = tmp_path / "bases.safetensors"
    calibrator.save(path, vlm.name)
    bases = load_bases(path, layers)
    assert calibrator.samples == 1
    for layer, basis in zip(key_layers(cache), bases, strict=True):
        mine = layer.store.visual.basis[0]
        assert torch.allclose(mine @ mine.mT, basis[..., :8] @ basis[..., :8].mT, atol=1e-3)
    said, _ = _run(vlm, embedded, Settings.of(keep_channels=0.25, calibration=str(path)))
    assert said == wanted
